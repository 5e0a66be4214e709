"""Learning: small models copy and reverse unseen strings with 95 % accuracy within seconds."""

import random
import time

import pytest

from regard import bundle
from regard.config import TrainSettings
from regard.text import Corpus
from regard.training.run import Job, run
from tests.commands.small import Quiet, written

LEAST = 95.0
TASKS = {"copy": str, "reverse": lambda word: word[::-1]}
MODELS = {
    "transformer": {
        "width": 32,
        "heads": 4,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "ffn_width": 64,
        "dropout": 0.0,
    },
    "recurrent": {"width": 48, "attention": "bahdanau", "dropout": 0.0},
}


def words(count: int) -> list[str]:
    """Different strings of two to four of six letters."""
    draw, found = random.Random(7), {}
    while len(found) < count:
        found["".join(draw.choices("abcdef", k=draw.randint(2, 4)))] = None
    return list(found)


@pytest.mark.parametrize(
    ("task", "family", "steps"),
    [
        ("copy", "transformer", 160),
        ("reverse", "transformer", 140),
        ("reverse", "recurrent", 140),
    ],
)
def test_a_small_model_learns(tmp_path, task, family, steps):
    every = words(1_400)
    lines = [(word, TASKS[task](word)) for word in every]
    learn, held = (
        written(tmp_path / "learn.tsv", lines[:1_200]),
        written(tmp_path / "held.tsv", lines[1_200:]),
    )
    train = TrainSettings(
        steps=steps, batch_tokens=768, learning_rate=0.02, evaluations=1, label_smoothing=0.0
    )
    job = Job(
        Corpus(learn),
        tmp_path / "run",
        Corpus(held),
        family=family,
        size="tiny",
        model=MODELS[family],
        train=train,
    )
    start, view = time.monotonic(), Quiet()
    card = run(job, view)
    assert card["held_out"] == 200
    assert not set(every[:1_200]) & set(every[1_200:])
    assert view.losses[0] > 1.5  # it did not know before
    assert card["metrics"]["sequence_accuracy"] >= LEAST, (
        card["metrics"],
        time.monotonic() - start,
    )
    assert bundle.load(tmp_path / "run/bundle").card["metrics"] == card["metrics"]
