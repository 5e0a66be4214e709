"""Batches: every pair once an epoch, under the budget, the same for everybody who asks."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.ragged import Ragged
from regard.text import BEGIN, END, Batches, Pairs, begun, ended, split, tokenise, train_tokenizer
from regard.text.bucketing import BatchError, Plan, plan
from regard.text.shuffle import keyed, mixed, shuffled


def lengths(count: int, seed: int = 0, most: int = 30) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    source = draw.integers(1, most, count).astype(np.int32)
    return source, np.maximum(1, source + draw.integers(-3, 4, count)).astype(np.int32)


def batches_of(made: Plan) -> list[list[int]]:
    return [made.batch(step).tolist() for step in range(len(made))]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    draw = random.Random(0)
    tokenizer = train_tokenizer("characters", ["abcdefghij"])
    texts = [tuple("".join(draw.choices("abcdefghij", k=draw.randrange(1, 25))) for _ in "st") for _ in range(3000)]
    return tokenise(texts, tokenizer, tokenizer, tmp_path_factory.mktemp("ids") / "ids")


# ---- the shuffle


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 1000, 4096, 4097])
def test_a_shuffle_is_a_permutation(count: int):
    places = shuffled(np.arange(count, dtype=np.uint64), count, keyed(1))
    assert sorted(places.tolist()) == list(range(count))
    some = np.arange(0, count, 3, dtype=np.uint64)
    assert shuffled(some, count, keyed(1)).tolist() == places[::3].tolist()  # any place can be asked for alone


def test_shuffles_differ_by_key_and_look_drawn():
    count = 5000
    places = [shuffled(np.arange(count, dtype=np.uint64), count, keyed(key)).astype(int) for key in range(40)]
    assert len({tuple(place) for place in places}) == 40
    for place in places:
        assert abs(np.corrcoef(place, np.arange(count))[0, 1]) < 0.06  # four standard deviations
        assert np.sum(place == np.arange(count)) < 8  # one on average
        assert abs(np.mean(np.abs(np.diff(place))) / count - 1 / 3) < 0.02
    assert keyed(1, 2) != keyed(2, 1) != keyed(3)


def test_mixing_is_splitmix64():
    """The first outputs of the published generator with seed 1234567, from its reference implementation."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(mixed(np.array([1234567], np.uint64), turn)[0]) for turn in range(3)] == known


# ---- the plan


@pytest.mark.parametrize("batch_tokens", [1, 50, 333, 100_000])
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_pair_once_and_no_batch_over_budget(batch_tokens: int, epoch: int):
    source, target = lengths(2500)
    made = batches_of(plan(source, target, batch_tokens=batch_tokens, seed=3, epoch=epoch))
    assert sorted(pair for batch in made for pair in batch) == list(range(2500))
    for batch in made:
        assert len(batch) == 1 or (source[batch] + target[batch]).sum() <= batch_tokens


def test_batches_are_as_full_as_greed_makes_them():
    source, target = lengths(2500)
    made = plan(source, target, batch_tokens=500, seed=3, epoch=0)
    tokens = (source + target).sum()
    assert len(made) <= 1.1 * tokens / 500


def test_a_plan_is_a_pure_function():
    source, target = lengths(2500)
    made = {
        (seed, epoch): tuple(map(tuple, batches_of(plan(source, target, batch_tokens=300, seed=seed, epoch=epoch))))
        for seed in (1, 2, -5)
        for epoch in (0, 1)
    }
    assert len(set(made.values())) == 6
    again = batches_of(plan(source.copy(), target.copy(), batch_tokens=300, seed=2, epoch=1))
    assert tuple(map(tuple, again)) == made[2, 1]


def test_a_plan_never_changes_from_version_to_version():
    """Written down once: a run that was started long ago must go on with the same batches."""
    source = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], np.int32)
    made = plan(source, source[::-1].copy(), batch_tokens=20, seed=7, epoch=2)
    assert batches_of(made) == [[7, 2], [8, 1], [5], [4], [6, 3, 9, 0]]


def test_like_lengths_stand_together():
    source, target = lengths(20_000)
    padded = tokens = 0
    for batch in batches_of(plan(source, target, batch_tokens=2000, seed=0, epoch=0)):
        padded += len(batch) * (int(source[batch].max()) + int(target[batch].max()))
        tokens += int(source[batch].sum() + target[batch].sum())
    assert tokens / padded > 0.9  # random batches reach about a half


def test_most_batches_of_words_have_one_length_a_side():
    random = np.random.default_rng(1)
    source = random.binomial(20, 0.35, 60_000) + 1
    target = np.maximum(1, source - random.integers(0, 4, 60_000))
    made = batches_of(plan(source, target, batch_tokens=2000, seed=0, epoch=0))
    even = [len(set(source[batch])) == len(set(target[batch])) == 1 for batch in made]
    assert np.mean(even) > 0.7  # 0.5 in chunks of 64 batches


def test_batches_come_in_random_order_and_company():
    source, target = lengths(20_000)
    first, second = (plan(source, target, batch_tokens=2000, seed=0, epoch=epoch) for epoch in (0, 1))
    means = np.array([source[batch].mean() for batch in batches_of(first)])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.25
    mates = [{pair: set(batch) for batch in batches_of(made) for pair in batch} for made in (first, second)]
    shared = [len(mates[0][pair] & mates[1][pair]) / len(mates[0][pair]) for pair in range(0, 20_000, 50)]
    assert np.mean(shared) < 0.3


def test_over_long_pairs_are_counted_and_left_out():
    source, target = np.array([5, 50, 5, 5]), np.array([5, 5, 51, 5])
    made = plan(source, target, batch_tokens=100, seed=0, epoch=0, limit=49)
    assert made.over_long == 2
    assert sorted(made.order.tolist()) == [0, 3]
    assert plan(source, target, batch_tokens=100, seed=0, epoch=0, limit=51).over_long == 0
    assert (
        plan(source, target, batch_tokens=20, seed=0, epoch=0).over_long == 0
    )  # without a limit they are batches of one


def test_a_million_pairs_are_planned_in_seconds():
    import time

    source, target = lengths(1_000_000)
    start = time.process_time()
    plan(source, target, batch_tokens=8000, seed=0, epoch=0)
    assert time.process_time() - start < 5  # about 0.5 alone on a slow core


def test_plans_that_cannot_be_made():
    source, target = lengths(5)
    with pytest.raises(BatchError, match=r"^a batch needs a budget of at least 1 token; got 0$"):
        plan(source, target, batch_tokens=0, seed=0, epoch=0)
    with pytest.raises(BatchError, match=r"^no pair has at most 0 tokens on each side; raise the limit$"):
        plan(source, target, batch_tokens=9, seed=0, epoch=0, limit=0)
    with pytest.raises(BatchError, match=r"^step 9 is not in this epoch of \d steps \(from 0\)$"):
        plan(source, target, batch_tokens=90, seed=0, epoch=0).batch(9)


# ---- the batches


def test_a_batch_holds_its_pairs(pairs: Pairs):
    batches = Batches(pairs, batch_tokens=400, seed=1)
    batch = batches.at(2, 3)
    assert isinstance(batch.source, Ragged)
    assert batch.source.values.dtype == batch.indices.dtype == torch.int64
    for i, source, target in zip(batch.indices.tolist(), batch.source, batch.target, strict=True):
        assert source.tolist() == pairs.source(i).tolist()
        assert target.tolist() == pairs.target(i).tolist()
    assert batch.step_tokens == len(batch.target.values)
    assert batch.step_pairs == len(batch) == len(batch.source)


def test_resuming_needs_nothing_but_the_numbers(pairs: Pairs):
    whole = [batch.indices.tolist() for batch in Batches(pairs, batch_tokens=400, seed=1).epoch(1)]
    fresh = Batches(pairs, batch_tokens=400, seed=1)
    assert [batch.indices.tolist() for batch in fresh.epoch(1, start=40)] == whole[40:]
    assert fresh.steps(1) == len(whole)
    assert fresh.at(0, 5).indices.tolist() != whole[5]
    assert fresh.at(1, 5).indices.tolist() == whole[5]
    assert sorted(pair for batch in whole for pair in batch) == list(range(3000))


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_together_see_what_one_would(pairs: Pairs, world: int):
    alone = Batches(pairs, batch_tokens=400, seed=1)
    ranks = [Batches(pairs, batch_tokens=400, seed=1, world=world, rank=rank) for rank in range(world)]
    assert {rank.steps(0) for rank in ranks} == {alone.steps(0)}
    for step in range(alone.steps(0)):
        whole, parts = alone.at(0, step), [rank.at(0, step) for rank in ranks]
        assert sorted(i for part in parts for i in part.indices.tolist()) == sorted(whole.indices.tolist())
        assert {(part.step_tokens, part.step_pairs) for part in parts} == {(whole.step_tokens, whole.step_pairs)}
        sizes = [len(part.source.values) + len(part.target.values) for part in parts]
        assert max(sizes) - min(sizes) <= 60  # about one pair


def test_a_rank_may_have_nothing(tmp_path: Path):
    tokenizer = train_tokenizer("characters", ["ab"])
    one = tokenise([("ab", "b")], tokenizer, tokenizer, tmp_path / "ids")
    idle = Batches(one, batch_tokens=9, seed=0, world=2, rank=1).at(0, 0)
    assert len(idle) == len(idle.source) == len(idle.target) == 0
    assert (idle.step_pairs, idle.step_tokens) == (1, 1)


def test_halves_make_the_whole(pairs: Pairs):
    batch = Batches(pairs, batch_tokens=400, seed=1).at(0, 0)
    halves = split(batch)
    assert sorted(i for half in halves for i in half.indices.tolist()) == sorted(batch.indices.tolist())
    for half in halves:
        assert (half.step_pairs, half.step_tokens) == (batch.step_pairs, batch.step_tokens)
        for i, source, target in zip(half.indices.tolist(), half.source, half.target, strict=True):
            assert source.tolist() == pairs.source(i).tolist()
            assert target.tolist() == pairs.target(i).tolist()
    sizes = [len(half.source.values) + len(half.target.values) for half in halves]
    assert abs(sizes[0] - sizes[1]) <= 60


def test_what_cannot_be_split(pairs: Pairs):
    single = Batches(pairs, batch_tokens=1, seed=1).at(0, 0)
    tokens = len(single.source.values) + len(single.target.values)
    said = rf"^a batch of one pair \({tokens} tokens\) cannot be split; lower the limit of length$"
    with pytest.raises(BatchError, match=said):
        split(single)
    with pytest.raises(BatchError, match=r"^rank 2 is not one of 2 \(they count from 0\)$"):
        Batches(pairs, batch_tokens=1, seed=1, world=2, rank=2)


def test_begin_and_end_by_hand():
    ids = Ragged.of([torch.tensor([7, 8]), torch.tensor([], dtype=torch.int64), torch.tensor([9])])
    assert [sequence.tolist() for sequence in begun(ids)] == [[BEGIN, 7, 8], [BEGIN], [BEGIN, 9]]
    assert [sequence.tolist() for sequence in ended(ids)] == [[7, 8, END], [END], [9, END]]
    assert ended(ids).longest == 3
    nothing = Ragged(torch.empty(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    assert len(begun(nothing)) == 0
