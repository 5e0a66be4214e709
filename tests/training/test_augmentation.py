"""Augmentation of small data: when it is chosen, and what a run trains on."""

import random

import pytest

from regard.config import TextSettings
from regard.text import Corpus
from regard.text.reading import Pair
from regard.training.augmentation import choose_augmentation
from regard.training.dataset import tokenize
from regard.training.raw_data import read
from regard.training.tokenizer_pair import choose
from tests.commands.small import written

RANDOM = random.Random(5)
STEMS = ["".join(RANDOM.choices("abdeklmnoprstu", k=RANDOM.randint(4, 8))) for _ in range(300)]
FORMS = [(f"<PL> {' '.join(stem)}", " ".join(f"{stem}en")) for stem in STEMS]
COPIES = [(" ".join(stem), " ".join(f"{stem}en")) for stem in STEMS]
SOUNDS = [(f"<fr> {' '.join(stem)}", " ".join(stem).upper()) for stem in STEMS]


def prepared(folder, pairs, **text):
    corpus = Corpus(written(folder / "pairs.tsv", pairs), header=False)
    settings = TextSettings(**text)
    return choose(read(corpus, None, settings, folder=folder / "data"))


@pytest.mark.parametrize(
    ("pairs", "chosen"),
    [
        (FORMS, True),
        (COPIES, False),  # no tag says what to do
        (SOUNDS, False),  # nothing is shared
        ([*FORMS] * 8, False),  # enough data
    ],
)
def test_small_tagged_data_with_stems_are_augmented(tmp_path, pairs, chosen):
    made = prepared(tmp_path, pairs)
    used = [Pair(*pair) for pair in pairs]
    augmentation, reason = choose_augmentation(used, len(used), made.source, made.target, None)
    assert (augmentation is not None) == chosen == ("hallucination" in reason)
    requested, _ = choose_augmentation(used, len(used), made.source, made.target, 50)
    assert requested.hallucinated == 50
    assert choose_augmentation(used, len(used), made.source, made.target, 0) == (None, "")


def test_a_run_trains_on_real_and_hallucinated_pairs(tmp_path):
    made = prepared(tmp_path, FORMS, hallucination=400)
    dataset = tokenize(made, lambda text: None)
    real = [pair for pair in FORMS if not made.split.is_held_out(pair[0])]
    repeats = 1 + round(100 / len(FORMS))
    decoded = [
        (
            made.source.decode(dataset.pairs.source(i).tolist()),
            made.target.decode(dataset.pairs.target(i).tolist()),
        )
        for i in range(len(dataset.pairs))
    ]
    assert decoded[: repeats * len(real)] == real * repeats
    new = decoded[repeats * len(real) :]
    assert len(new) == 400
    assert all(f"{source.removeprefix('<PL> ')} e n" == target for source, target in new)
    assert len(set(new) - set(FORMS)) > 350
    known = dataset.training_sources
    assert all(known.contains(source) for source, _ in real)
    assert not any(known.contains(source) for source, _ in set(new) - set(FORMS))
    assert any("400 pairs with random stems" in line for line in dataset.decisions)
    again = tokenize(prepared(tmp_path, FORMS, hallucination=400), lambda text: None)
    assert again.decisions == dataset.decisions
