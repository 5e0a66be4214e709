"""Biases by distance: alibi, distance, t5 and shaw on small tables, by hand."""

import itertools
import math

import pytest
import torch

from regard.axes import Offset, Site
from regard.errors import RegardError
from regard.positions import T5, Alibi, BiasPosition, Distance, Shaw

DIM = 4


def table(
    bias: BiasPosition, heads: int, queries: int, keys: int, offset: Offset = 0, score: float = 0.0
) -> list:
    """What a bias makes of equal scores: for each head a row for each query."""
    q, k = torch.zeros(1, heads, queries, DIM), torch.zeros(1, heads, keys, DIM)
    scores = torch.full((1, heads, queries, keys), score)
    return bias.bind(q)(scores, Site.grid(q, k, offset))[0].tolist()


def test_slopes_of_eight_heads():
    assert Alibi(8).slopes.tolist() == [
        1 / 2,
        1 / 4,
        1 / 8,
        1 / 16,
        1 / 32,
        1 / 64,
        1 / 128,
        1 / 256,
    ]


@pytest.mark.parametrize(
    ("heads", "powers"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (4, [2, 4, 6, 8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (16, [x / 2 for x in range(1, 17)]),
    ],
)
def test_slopes_of_other_head_counts(heads: int, powers: list[float]):
    assert Alibi(heads).slopes.tolist() == pytest.approx([2**-power for power in powers])


def test_alibi_subtracts_slope_times_distance():
    tables = table(Alibi(2), 2, 3, 4, score=1.0)
    apart = [[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1]]
    assert tables == [[[1 - x / 2**power for x in row] for row in apart] for power in (4, 8)]


def test_alibi_in_cached_decoding():
    assert table(Alibi(1), 1, 2, 4, offset=2) == [
        [[-2 / 256, -1 / 256, 0, -1 / 256], [-3 / 256, -2 / 256, -1 / 256, 0]]
    ]


def distance() -> Distance:
    bias = Distance(2, DIM, max_distance=2)
    with torch.no_grad():
        bias.table.copy_(torch.tensor([[2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 0.0, -2.0, 20.0, 0.0]]))
    return bias


def test_distance_clips_and_scales_its_table():
    first = [[3, 4, 5, 5], [2, 3, 4, 5], [1, 2, 3, 4], [1, 1, 2, 3]]  # halves of the table: √4 = 2
    second = [[-1, 10, 0, 0], [0, -1, 10, 0], [0, 0, -1, 10], [0, 0, 0, -1]]
    assert table(distance(), 2, 4, 4) == [first, second]


def test_distance_starts_at_zero_and_adds_to_the_score():
    assert table(distance(), 2, 1, 2, score=7.0) == [[[10, 11]], [[6, 17]]]
    assert table(Distance(1, DIM), 1, 2, 3, score=7.0) == [[[7, 7, 7]] * 2]
    assert Distance(3, DIM, max_distance=5).table.shape == (3, 11)


def test_distance_in_cached_decoding():
    assert table(distance(), 2, 1, 5, offset=3)[0] == [[1, 1, 2, 3, 4]]


def test_each_row_of_a_cache_has_its_own_distances():
    q, k = torch.zeros(2, 2, 1, DIM), torch.zeros(2, 2, 3, DIM)
    got = distance()(torch.zeros(2, 2, 1, 3), Site.grid(q, k, torch.tensor([0, 2])))
    assert got[:, 0].tolist() == [[[3, 4, 5]], [[1, 2, 3]]]


def test_t5_buckets_by_hand():
    """Eight buckets for both sides: 0 and 1 exact, 2 and 3 in one, and all from 4 on in another."""
    buckets = T5(1, buckets=8, max_distance=8).bucket(torch.arange(-9, 10)).tolist()
    assert buckets == [3, 3, 3, 3, 3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7, 7, 7, 7, 7]


def test_causal_t5_buckets_by_hand():
    """Eight buckets for the past: 0 … 3 exact, then two per octave; later keys count as 0."""
    buckets = T5(1, buckets=8, max_distance=16, causal=True).bucket(torch.arange(-17, 3)).tolist()
    assert buckets == [7] * 6 + [6] * 4 + [5] * 2 + [4] * 2 + [3, 2, 1, 0, 0, 0]


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (10, 30), (64, 1000)])
def test_t5_buckets_increase_and_are_all_used(buckets: int, farthest: int):
    causal = (
        T5(1, buckets=buckets, max_distance=farthest, causal=True)
        .bucket(-torch.arange(2 * farthest))
        .tolist()
    )
    assert all(a <= b <= a + 1 for a, b in itertools.pairwise(causal))
    assert (causal[0], causal[-1], causal[farthest]) == (0, buckets - 1, buckets - 1)
    both = T5(1, buckets=buckets, max_distance=farthest)
    before, after = (both.bucket(sign * torch.arange(1, 2 * farthest)).tolist() for sign in (-1, 1))
    assert all(a <= b for a, b in itertools.pairwise(before))
    assert after == [bucket + buckets // 2 for bucket in before]
    assert max(before) == buckets // 2 - 1


def test_t5_reads_its_table_per_head():
    bias = T5(2, buckets=4, max_distance=4, causal=True)
    with torch.no_grad():
        bias.table.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]]))
    first, second = table(bias, 2, 1, 7, offset=5)
    assert first == [[4, 4, 4, 3, 2, 1, 1]]  # distances 5, 4, 3, 2, 1, 0, and one ahead
    assert second == [[40, 40, 40, 30, 20, 10, 10]]


def test_shaw_by_hand():
    shaw = Shaw(DIM, max_distance=1)
    with torch.no_grad():
        shaw.table.copy_(
            torch.tensor([[1.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 0, 4.0]])
        )  # before, here, after
    queries = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]])
    site = Site.grid(queries, torch.zeros(1, 1, 3, DIM))
    assert shaw.bind(queries)(torch.ones(1, 1, 2, 3), site)[0, 0].tolist() == [
        [1 + 4 / 2, 1 + 16 / 2, 1 + 16 / 2],
        [1 + 5 / 2, 1 + 12 / 2, 1 + 32 / 2],
    ]


def test_shaw_starts_at_the_scale_of_scaled_dot():
    assert Shaw(64, max_distance=50).table.std().item() == pytest.approx(
        1 / math.sqrt(64), rel=0.05
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Alibi(0), "heads must be at least 1; got 0"),
        (lambda: Distance(2, DIM, max_distance=0), "max_distance must be at least 1; got 0"),
        (lambda: Shaw(DIM, max_distance=-1), "max_distance must be at least 1; got -1"),
        (
            lambda: T5(2, buckets=8, max_distance=2),
            "max_distance must exceed the exact buckets; got buckets=8, max_distance=2",
        ),
        (
            lambda: T5(2, buckets=8, max_distance=4, causal=True),
            "max_distance must exceed the exact buckets; got buckets=8, max_distance=4",
        ),
    ],
)
def test_invalid_options(make, message: str):
    with pytest.raises(RegardError) as caught:
        make()
    assert str(caught.value) == message
