"""BPE-dropout: same text, other tokens, at the given rate, reproducibly."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from regard.config import TextSettings, TrainSettings
from regard.text import Batches, BpeDropout, Corpus, tokenize_corpus, train_tokenizer
from regard.text.bpe_dropout import merge_parts
from regard.training.dataset import tokenize
from regard.training.raw_data import read
from regard.training.tokenizer_pair import choose
from tests.commands.small import written

WORDS = [
    "attention",
    "attentive",
    "tension",
    "intention",
    "detention",
    "attend",
    "äther",
    "pretend",
    "ten",
]
LINES = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 7)) for i in range(300)]
TOKENIZER = train_tokenizer("bpe", LINES, size=340)
PARTS = merge_parts(TOKENIZER)
IDS = [TOKENIZER.encode(line) for line in LINES]


def flat_ids(texts: list[int]):
    ends = np.cumsum([0, *(len(IDS[text]) for text in texts)])
    return np.concatenate([np.array(IDS[text], np.int64) for text in texts]), ends


def split_texts(
    texts: list[int], rate: float, *, epoch: int = 0, seed: int = 1, max_tokens: int = 10**6
) -> list[list[int]]:
    dropout = BpeDropout(PARTS, probability=rate, seed=seed, max_tokens=max_tokens)
    ids, ends = dropout(flat_ids(texts), np.array(texts), epoch)
    assert ids.dtype == np.int64
    return [ids[a:b].tolist() for a, b in pairwise(ends)]


def test_merge_parts_decode_to_the_same_text():
    whole = [id for id in range(len(TOKENIZER)) if PARTS[id, 0] >= 0]
    assert len(whole) > 20
    for id in whole:
        assert TOKENIZER.decode(PARTS[id].tolist()) == TOKENIZER.decode([id])
    assert (merge_parts(train_tokenizer("characters", LINES)) == -1).all()
    assert (merge_parts(train_tokenizer("words", LINES)) == -1).all()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_the_text_does_not_change(rate: float):
    every = list(range(len(LINES)))
    found = split_texts(every, rate)
    assert [TOKENIZER.decode(ids) for ids in found] == LINES
    if rate == 0:
        assert found == IDS
    if rate == 1:
        assert all((PARTS[ids, 0] == -1).all() for ids in found)  # single characters
    elif rate:
        assert found != IDS


def test_tokens_are_split_recursively_at_the_given_rate():
    every, rate = list(range(300)), 0.3
    splits = mergeable = halves = again = 0
    for epoch in range(5):
        for before, after in zip(IDS, split_texts(every, rate, epoch=epoch), strict=True):
            mergeable += (possible := sum(PARTS[id, 0] >= 0 for id in before))
            splits += possible - len([id for id in _unchanged(before, after) if PARTS[id, 0] >= 0])
    assert splits / mergeable == pytest.approx(rate, abs=0.01)
    two = TOKENIZER.encode("attention")[:1]  # one token with parts that are merges, too
    assert len(two) == 1
    left = PARTS[two[0], 0]
    assert PARTS[left, 0] >= 0
    dropout, count = (
        BpeDropout(PARTS, probability=rate, seed=5, max_tokens=99),
        20_000,
    )
    ids, ends = dropout((np.array(two * count), np.arange(count + 1)), np.arange(count), 0)
    for start, end in pairwise(ends):
        if ids[start:end].tolist() != two:
            halves, again = halves + 1, again + (ids[start] != left)
    assert halves / count == pytest.approx(rate, abs=0.015)
    assert again / halves == pytest.approx(rate, abs=0.03)


def _unchanged(before: list[int], after: list[int]) -> list[int]:
    """The tokens of the first segmentation that are at the same characters in the second."""
    starts = [
        np.cumsum([0, *(len(TOKENIZER.decode([id]).encode()) for id in ids)]).tolist()
        for ids in (before, after)
    ]
    present = {(at, id) for at, id in zip(starts[1], after, strict=False)}
    return [id for at, id in zip(starts[0], before, strict=False) if (at, id) in present]


def test_result_depends_on_seed_epoch_and_text_only():
    together = split_texts(list(range(40)), 0.3)
    assert [split_texts([text], 0.3)[0] for text in range(40)] == together
    assert split_texts(list(range(40)), 0.3) == together
    assert split_texts(list(range(40)), 0.3, epoch=1) != together
    assert split_texts(list(range(40)), 0.3, seed=2) != together


def test_texts_that_would_be_too_long_are_unchanged():
    longest = max(map(len, IDS))
    found = split_texts(list(range(300)), 0.6, max_tokens=longest)
    assert max(map(len, found)) <= longest
    free = split_texts(list(range(300)), 0.6)
    for before, without, within in zip(IDS, free, found, strict=True):
        assert within == (without if len(without) <= longest else before)
    assert any(len(ids) > longest for ids in free)


def test_ranks_share_the_batches_of_one_process(tmp_path):
    pairs = tokenize_corpus(
        list(zip(LINES, LINES, strict=True)), TOKENIZER, TOKENIZER, tmp_path / "ids"
    )
    dropout = [BpeDropout(PARTS, probability=0.3, seed=side, max_tokens=99) for side in (1, 2)]
    alone = Batches(pairs, batch_tokens=300, seed=1, bpe_dropout=dropout)
    ranks = [
        Batches(pairs, batch_tokens=300, seed=1, bpe_dropout=dropout, world_size=2, rank=rank)
        for rank in range(2)
    ]
    for step in (0, 3):
        whole, parts = alone.at(2, step), [rank.at(2, step) for rank in ranks]
        assert (
            whole.step_target_tokens
            == len(whole.target.values)
            == parts[0].step_target_tokens
            == parts[1].step_target_tokens
        )
        known = {
            int(i): ids.tolist()
            for i, ids in zip(whole.indices, whole.source.unbind(), strict=True)
        }
        for part in parts:
            assert [ids.tolist() for ids in part.source.unbind()] == [
                known[int(i)] for i in part.indices
            ]
        source = [TOKENIZER.decode(ids.tolist()) for ids in whole.source.unbind()]
        assert source == [TOKENIZER.decode(ids.tolist()) for ids in whole.target.unbind()]
        assert any(
            a.tolist() != b.tolist()
            for a, b in zip(whole.source.unbind(), whole.target.unbind(), strict=True)
        )


def test_train_settings_enable_it(tmp_path):
    corpus = Corpus(written(tmp_path / "pairs.tsv", [(line, line) for line in LINES]))
    text = TextSettings(source_tokenizer="bpe", target_tokenizer="characters", vocabulary_size=340)
    raw = read(corpus, None, text, folder=tmp_path / "data")
    data = tokenize(choose(raw), lambda _: None)
    source, target = data.batches(TrainSettings(bpe_dropout=0.2), 500).bpe_dropout
    assert isinstance(source, BpeDropout)
    assert target is None
    assert data.batches(TrainSettings(), 500).bpe_dropout == (None, None)
    bounded = (
        replace(data, max_tokens=3).batches(TrainSettings(bpe_dropout=0.2), 500).bpe_dropout[0]
    )
    assert isinstance(bounded, BpeDropout)
    assert bounded.max_tokens <= 3 < source.max_tokens  # longer pairs are skipped
