"""Respelling: the same text in other pieces, as often as asked, and the same for whoever reads it."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from regard.config import TextSettings, TrainSettings
from regard.text import Batches, Corpus, Respelling, tokenise, train_tokenizer
from regard.train.prepare import prepare
from tests.commands.small import written

WORDS = ["attention", "attentive", "tension", "intention", "detention", "attend", "äther", "pretend", "ten"]
LINES = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 7)) for i in range(300)]
TOKENIZER = train_tokenizer("bpe", LINES, size=340)
IDS = [TOKENIZER.encode(line) for line in LINES]


def gathered(texts: list[int]):
    ends = np.cumsum([0, *(len(IDS[text]) for text in texts)])
    return np.concatenate([np.array(IDS[text], np.int64) for text in texts]), ends


def respelt(texts: list[int], chance: float, *, epoch: int = 0, seed: int = 1, longest: int = 10**6) -> list[list[int]]:
    spell = Respelling(TOKENIZER.halves, chance=chance, seed=seed, longest=longest)
    ids, ends = spell(gathered(texts), np.array(texts), epoch)
    assert ids.dtype == np.int64
    return [ids[a:b].tolist() for a, b in pairwise(ends)]


def test_halves_are_the_merges_and_spell_the_same():
    whole = [id for id in range(len(TOKENIZER)) if TOKENIZER.halves[id, 0] >= 0]
    assert len(whole) > 20
    for id in whole:
        assert TOKENIZER.decode(TOKENIZER.halves[id].tolist()) == TOKENIZER.decode([id])
    assert (train_tokenizer("characters", LINES).halves == -1).all()
    assert (train_tokenizer("words", LINES).halves == -1).all()


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 1.0])
def test_the_text_stays_the_same(chance: float):
    every = list(range(len(LINES)))
    found = respelt(every, chance)
    assert [TOKENIZER.decode(ids) for ids in found] == LINES
    if chance == 0:
        assert found == IDS
    if chance == 1:
        assert all((TOKENIZER.halves[ids, 0] == -1).all() for ids in found)  # letters alone
    elif chance:
        assert found != IDS


def test_pieces_fall_as_often_as_asked_and_halves_in_turn():
    every, chance, fell, whole, halves, again = list(range(300)), 0.3, 0, 0, 0, 0
    for epoch in range(5):
        for before, after in zip(IDS, respelt(every, chance, epoch=epoch), strict=True):
            whole += (may := sum(TOKENIZER.halves[id, 0] >= 0 for id in before))
            fell += may - len([id for id in _kept(before, after) if TOKENIZER.halves[id, 0] >= 0])
    assert fell / whole == pytest.approx(chance, abs=0.01)
    two = TOKENIZER.encode("attention")[:1]  # one piece, whose halves are pieces too
    assert len(two) == 1
    left = TOKENIZER.halves[two[0], 0]
    assert TOKENIZER.halves[left, 0] >= 0
    spell, count = Respelling(TOKENIZER.halves, chance=chance, seed=5, longest=99), 20_000
    ids, ends = spell((np.array(two * count), np.arange(count + 1)), np.arange(count), 0)
    for start, end in pairwise(ends):
        if ids[start:end].tolist() != two:
            halves, again = halves + 1, again + (ids[start] != left)
    assert halves / count == pytest.approx(chance, abs=0.015)
    assert again / halves == pytest.approx(chance, abs=0.03)


def _kept(before: list[int], after: list[int]) -> list[int]:
    """The pieces of the first spelling that stand at the same letters in the second."""
    places = [np.cumsum([0, *(len(TOKENIZER.decode([id]).encode()) for id in ids)]).tolist() for ids in (before, after)]
    stands = {(at, id) for at, id in zip(places[1], after, strict=False)}
    return [id for at, id in zip(places[0], before, strict=False) if (at, id) in stands]


def test_it_depends_on_seed_epoch_and_text_and_on_no_company():
    together = respelt(list(range(40)), 0.3)
    assert [respelt([text], 0.3)[0] for text in range(40)] == together
    assert respelt(list(range(40)), 0.3) == together
    assert respelt(list(range(40)), 0.3, epoch=1) != together
    assert respelt(list(range(40)), 0.3, seed=2) != together


def test_a_text_that_would_get_too_long_stays_whole():
    longest = max(map(len, IDS))
    found = respelt(list(range(300)), 0.6, longest=longest)
    assert max(map(len, found)) <= longest
    free = respelt(list(range(300)), 0.6)
    for before, without, within in zip(IDS, free, found, strict=True):
        assert within == (without if len(without) <= longest else before)
    assert any(len(ids) > longest for ids in free)


def test_ranks_read_together_what_one_would(tmp_path):
    pairs = tokenise(list(zip(LINES, LINES, strict=True)), TOKENIZER, TOKENIZER, tmp_path / "ids")
    spell = [Respelling(TOKENIZER.halves, chance=0.3, seed=side, longest=99) for side in (1, 2)]
    alone = Batches(pairs, batch_tokens=300, seed=1, respelt=spell)
    ranks = [Batches(pairs, batch_tokens=300, seed=1, respelt=spell, world=2, rank=rank) for rank in range(2)]
    for step in (0, 3):
        whole, parts = alone.at(2, step), [rank.at(2, step) for rank in ranks]
        assert whole.step_tokens == len(whole.target.values) == parts[0].step_tokens == parts[1].step_tokens
        known = {int(i): ids.tolist() for i, ids in zip(whole.indices, whole.source.unbind(), strict=True)}
        for part in parts:
            assert [ids.tolist() for ids in part.source.unbind()] == [known[int(i)] for i in part.indices]
        source = [TOKENIZER.decode(ids.tolist()) for ids in whole.source.unbind()]
        assert source == [TOKENIZER.decode(ids.tolist()) for ids in whole.target.unbind()]
        assert any(a.tolist() != b.tolist() for a, b in zip(whole.source.unbind(), whole.target.unbind(), strict=True))


def test_training_asks_for_it(tmp_path):
    corpus = Corpus(written(tmp_path / "pairs.tsv", [(line, line) for line in LINES]))
    text = TextSettings(source_tokenizer="bpe", target_tokenizer="characters", vocabulary_size=340)
    data = prepare(corpus, None, text, 1, tmp_path / "data", lambda _: None)
    source, target = data.batches(TrainSettings(bpe_dropout=0.2), 500).respelt
    assert isinstance(source, Respelling)
    assert target is None
    assert data.batches(TrainSettings(), 500).respelt == (None, None)
    bounded = replace(data, limit=3).batches(TrainSettings(bpe_dropout=0.2), 500).respelt[0]
    assert isinstance(bounded, Respelling)
    assert bounded.longest <= 3 < source.longest  # pairs beyond the limit are not read
