"""Batches: every pair once per epoch, limited tokens, the same for every caller."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.ragged import Ragged
from regard.text import (
    BEGIN,
    END,
    Batches,
    TokenizedPairs,
    split_batch,
    tokenize_corpus,
    train_tokenizer,
    with_begin,
    with_end,
)
from regard.text.bucketing import (
    BatchError,
    BatchPlan,
    hash_key,
    permute,
    plan_batches,
    splitmix64,
)


def lengths(count: int, seed: int = 0, most: int = 30) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    source = draw.integers(1, most, count).astype(np.int32)
    return source, np.maximum(1, source + draw.integers(-3, 4, count)).astype(np.int32)


def batches_of(made: BatchPlan) -> list[list[int]]:
    return [made.batch(step).tolist() for step in range(len(made))]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> TokenizedPairs:
    draw = random.Random(0)
    tokenizer = train_tokenizer("characters", ["abcdefghij"])
    texts = [
        tuple("".join(draw.choices("abcdefghij", k=draw.randrange(1, 25))) for _ in "st")
        for _ in range(3000)
    ]
    return tokenize_corpus(texts, tokenizer, tokenizer, tmp_path_factory.mktemp("ids") / "ids")


# ---- permutation


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 1000, 4096, 4097])
def test_permute_is_a_permutation(count: int):
    places = permute(np.arange(count, dtype=np.uint64), count, hash_key(1))
    assert sorted(places.tolist()) == list(range(count))
    some = np.arange(0, count, 3, dtype=np.uint64)
    assert (
        permute(some, count, hash_key(1)).tolist() == places[::3].tolist()
    )  # any subset of indices


def test_permutations_differ_by_key_and_look_random():
    count = 5000
    places = [
        permute(np.arange(count, dtype=np.uint64), count, hash_key(key)).astype(int)
        for key in range(40)
    ]
    assert len({tuple(place) for place in places}) == 40
    for place in places:
        assert abs(np.corrcoef(place, np.arange(count))[0, 1]) < 0.06  # four standard deviations
        assert np.sum(place == np.arange(count)) < 8  # one on average
        assert abs(np.mean(np.abs(np.diff(place))) / count - 1 / 3) < 0.02
    assert hash_key(1, 2) != hash_key(2, 1) != hash_key(3)


def test_splitmix64_matches_the_published_generator():
    """The first outputs of the published generator with seed 1234567, from its reference
    implementation."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(splitmix64(np.array([1234567], np.uint64), step)[0]) for step in range(3)] == known


# ---- plan


@pytest.mark.parametrize("batch_tokens", [1, 50, 333, 100_000])
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_pair_once_and_no_batch_too_large(batch_tokens: int, epoch: int):
    source, target = lengths(2500)
    made = batches_of(plan_batches(source, target, batch_tokens=batch_tokens, seed=3, epoch=epoch))
    assert sorted(pair for batch in made for pair in batch) == list(range(2500))
    for batch in made:
        assert len(batch) == 1 or (source[batch] + target[batch]).sum() <= batch_tokens


def test_batches_are_nearly_full():
    source, target = lengths(2500)
    made = plan_batches(source, target, batch_tokens=500, seed=3, epoch=0)
    tokens = (source + target).sum()
    assert len(made) <= 1.1 * tokens / 500


def test_plan_is_a_pure_function():
    source, target = lengths(2500)
    made = {
        (seed, epoch): tuple(
            map(
                tuple,
                batches_of(plan_batches(source, target, batch_tokens=300, seed=seed, epoch=epoch)),
            )
        )
        for seed in (1, 2, -5)
        for epoch in (0, 1)
    }
    assert len(set(made.values())) == 6
    again = batches_of(
        plan_batches(source.copy(), target.copy(), batch_tokens=300, seed=2, epoch=1)
    )
    assert tuple(map(tuple, again)) == made[2, 1]


def test_plan_does_not_change_between_versions():
    """A stored plan: an old run must resume with the same batches."""
    source = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], np.int32)
    made = plan_batches(source, source[::-1].copy(), batch_tokens=20, seed=7, epoch=2)
    assert batches_of(made) == [[7, 2], [8, 1], [5], [4], [6, 3, 9, 0]]


def test_batches_have_similar_lengths():
    source, target = lengths(20_000)
    padded = tokens = 0
    for batch in batches_of(plan_batches(source, target, batch_tokens=2000, seed=0, epoch=0)):
        padded += len(batch) * (int(source[batch].max()) + int(target[batch].max()))
        tokens += int(source[batch].sum() + target[batch].sum())
    assert tokens / padded > 0.9  # random batches reach about a half


def test_most_batches_of_words_have_one_length_per_side():
    random = np.random.default_rng(1)
    source = random.binomial(20, 0.35, 60_000) + 1
    target = np.maximum(1, source - random.integers(0, 4, 60_000))
    made = batches_of(plan_batches(source, target, batch_tokens=2000, seed=0, epoch=0))
    even = [len(set(source[batch])) == len(set(target[batch])) == 1 for batch in made]
    assert np.mean(even) > 0.7  # 0.5 in chunks of 64 batches


def test_order_and_batch_members_are_random():
    source, target = lengths(20_000)
    first, second = (
        plan_batches(source, target, batch_tokens=2000, seed=0, epoch=epoch) for epoch in (0, 1)
    )
    means = np.array([source[batch].mean() for batch in batches_of(first)])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.25
    mates = [
        {pair: set(batch) for batch in batches_of(made) for pair in batch}
        for made in (first, second)
    ]
    shared = [
        len(mates[0][pair] & mates[1][pair]) / len(mates[0][pair]) for pair in range(0, 20_000, 50)
    ]
    assert np.mean(shared) < 0.3


def test_pairs_over_the_limit_are_skipped_and_counted():
    source, target = np.array([5, 50, 5, 5]), np.array([5, 5, 51, 5])
    made = plan_batches(source, target, batch_tokens=100, seed=0, epoch=0, max_tokens=49)
    assert made.too_long == 2
    assert sorted(made.order.tolist()) == [0, 3]
    assert (
        plan_batches(source, target, batch_tokens=100, seed=0, epoch=0, max_tokens=51).too_long == 0
    )
    assert (
        plan_batches(source, target, batch_tokens=20, seed=0, epoch=0).too_long == 0
    )  # without a limit each is a batch


def test_planning_a_million_pairs_is_fast():
    import time

    source, target = lengths(1_000_000)
    start = time.process_time()
    plan_batches(source, target, batch_tokens=8000, seed=0, epoch=0)
    assert time.process_time() - start < 5  # about 0.5 alone on a slow core


def test_invalid_plans():
    source, target = lengths(5)
    with pytest.raises(BatchError, match=r"^batch_tokens must be at least 1; got 0$"):
        plan_batches(source, target, batch_tokens=0, seed=0, epoch=0)
    with pytest.raises(
        BatchError, match=r"^no pair has at most 0 tokens on each side; raise the limit$"
    ):
        plan_batches(source, target, batch_tokens=9, seed=0, epoch=0, max_tokens=0)
    with pytest.raises(BatchError, match=r"^step 9 is not in this epoch of \d steps \(from 0\)$"):
        plan_batches(source, target, batch_tokens=90, seed=0, epoch=0).batch(9)


# ---- batches


def test_batch_contains_the_ids_of_its_pairs(pairs: TokenizedPairs):
    batches = Batches(pairs, batch_tokens=400, seed=1)
    batch = batches.at(2, 3)
    assert isinstance(batch.source, Ragged)
    assert batch.source.values.dtype == batch.indices.dtype == torch.int64
    for i, source, target in zip(batch.indices.tolist(), batch.source, batch.target, strict=True):
        assert source.tolist() == pairs.source(i).tolist()
        assert target.tolist() == pairs.target(i).tolist()
    assert batch.step_target_tokens == len(batch.target.values)
    assert batch.step_pairs == len(batch) == len(batch.source)


def test_reversed_targets_by_hand(tmp_path: Path):
    tokenizer = train_tokenizer("characters", ["abcdef"])
    texts = [("ab", "cde"), ("f", "a"), ("abc", "")]
    stored = tokenize_corpus(texts, tokenizer, tokenizer, tmp_path / "ids")
    batch = Batches(stored, batch_tokens=100, seed=1, reversed_targets=True).at(0, 0)
    found = {
        (tokenizer.decode(source.tolist()), tokenizer.decode(target.tolist()))
        for source, target in zip(batch.source.unbind(), batch.target.unbind(), strict=True)
    }
    assert found == {("ab", "edc"), ("f", "a"), ("abc", "")}


def test_batches_resume_from_epoch_and_step(pairs: TokenizedPairs):
    whole = [batch.indices.tolist() for batch in Batches(pairs, batch_tokens=400, seed=1).epoch(1)]
    fresh = Batches(pairs, batch_tokens=400, seed=1)
    assert [batch.indices.tolist() for batch in fresh.epoch(1, start=40)] == whole[40:]
    assert fresh.steps(1) == len(whole)
    assert fresh.at(0, 5).indices.tolist() != whole[5]
    assert fresh.at(1, 5).indices.tolist() == whole[5]
    assert sorted(pair for batch in whole for pair in batch) == list(range(3000))


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_share_the_pairs_of_one_process(pairs: TokenizedPairs, world: int):
    alone = Batches(pairs, batch_tokens=400, seed=1)
    ranks = [
        Batches(pairs, batch_tokens=400, seed=1, world_size=world, rank=rank)
        for rank in range(world)
    ]
    assert {rank.steps(0) for rank in ranks} == {alone.steps(0)}
    for step in range(alone.steps(0)):
        whole, parts = alone.at(0, step), [rank.at(0, step) for rank in ranks]
        assert sorted(i for part in parts for i in part.indices.tolist()) == sorted(
            whole.indices.tolist()
        )
        assert {(part.step_target_tokens, part.step_pairs) for part in parts} == {
            (whole.step_target_tokens, whole.step_pairs)
        }
        sizes = [len(part.source.values) + len(part.target.values) for part in parts]
        assert max(sizes) - min(sizes) <= 60  # about one pair


def test_rank_with_an_empty_batch(tmp_path: Path):
    tokenizer = train_tokenizer("characters", ["ab"])
    one = tokenize_corpus([("ab", "b")], tokenizer, tokenizer, tmp_path / "ids")
    idle = Batches(one, batch_tokens=9, seed=0, world_size=2, rank=1).at(0, 0)
    assert len(idle) == len(idle.source) == len(idle.target) == 0
    assert (idle.step_pairs, idle.step_target_tokens) == (1, 1)


def test_halves_contain_all_pairs(pairs: TokenizedPairs):
    batch = Batches(pairs, batch_tokens=400, seed=1).at(0, 0)
    halves = split_batch(batch)
    assert sorted(i for half in halves for i in half.indices.tolist()) == sorted(
        batch.indices.tolist()
    )
    for half in halves:
        assert (half.step_pairs, half.step_target_tokens) == (
            batch.step_pairs,
            batch.step_target_tokens,
        )
        for i, source, target in zip(half.indices.tolist(), half.source, half.target, strict=True):
            assert source.tolist() == pairs.source(i).tolist()
            assert target.tolist() == pairs.target(i).tolist()
    sizes = [len(half.source.values) + len(half.target.values) for half in halves]
    assert abs(sizes[0] - sizes[1]) <= 60


def test_invalid_split_and_rank(pairs: TokenizedPairs):
    single = Batches(pairs, batch_tokens=1, seed=1).at(0, 0)
    tokens = len(single.source.values) + len(single.target.values)
    printed = rf"^a batch of one pair \({tokens} tokens\) cannot be split; lower text.max_tokens$"
    with pytest.raises(BatchError, match=printed):
        split_batch(single)
    with pytest.raises(BatchError, match=r"^rank must be from 0 to 1; got 2$"):
        Batches(pairs, batch_tokens=1, seed=1, world_size=2, rank=2)


def test_begin_and_end_by_hand():
    ids = Ragged.of([torch.tensor([7, 8]), torch.tensor([], dtype=torch.int64), torch.tensor([9])])
    assert [sequence.tolist() for sequence in with_begin(ids)] == [
        [BEGIN, 7, 8],
        [BEGIN],
        [BEGIN, 9],
    ]
    assert [sequence.tolist() for sequence in with_end(ids)] == [[7, 8, END], [END], [9, END]]
    assert with_end(ids).longest == 3
    nothing = Ragged(torch.empty(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    assert len(with_begin(nothing)) == 0
