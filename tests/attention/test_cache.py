"""Cache: rows that grow, reorder and branch, and never change."""

import itertools

import pytest
import torch
from torch import Tensor

from regard import Cache, Ragged
from regard.errors import RegardError, ShapeError

BATCH, GROUPS, DIM, OUT = 2, 3, 4, 5


def fresh(count: int, batch: int = BATCH) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, GROUPS, count, DIM), torch.randn(batch, GROUPS, count, OUT)


def uneven(*counts: int) -> tuple[Ragged, Ragged]:
    layout = Ragged.of([torch.zeros(count) for count in counts])
    total = sum(counts)
    return layout.like(torch.randn(total, GROUPS, DIM)), layout.like(
        torch.randn(total, GROUPS, OUT)
    )


def rows(cache: Cache) -> list[tuple[Tensor, Tensor]]:
    """The real keys and values of each row."""
    keys, values = cache.keys, cache.values
    lengths = (
        [cache.longest] * len(keys.tensor) if cache.lengths is None else cache.lengths.tolist()
    )
    return [
        (k[:, :n].clone(), v[:, :n].clone())
        for k, v, n in zip(keys.tensor, values.tensor, lengths, strict=True)
    ]


def assert_same(got: list[tuple[Tensor, Tensor]], expected: list[tuple[Tensor, Tensor]]) -> None:
    for ours, wanted in zip(got, expected, strict=True):
        assert torch.equal(ours[0], wanted[0])
        assert torch.equal(ours[1], wanted[1])


def test_append_keeps_the_order():
    first, second = fresh(2), fresh(3)
    cache = Cache().append(*first).append(*second)
    assert torch.equal(cache.keys.tensor, torch.cat([first[0], second[0]], 2))
    assert torch.equal(cache.values.tensor, torch.cat([first[1], second[1]], 2))
    assert (cache.longest, cache.offset, cache.lengths) == (5, 5, None)


def test_rows_of_different_lengths():
    first, second = uneven(3, 1), uneven(1, 4)
    cache = Cache().append(*first).append(*second)
    assert cache.lengths.tolist() == cache.offset.tolist() == [4, 5]
    assert cache.longest == 5
    joined = [
        (torch.cat([a[i], b[i]]).transpose(0, 1), torch.cat([c[i], d[i]]).transpose(0, 1))
        for (a, c), (b, d) in [([x.unbind() for x in first], [x.unbind() for x in second])]
        for i in range(2)
    ]
    assert_same(rows(cache), joined)


def test_uneven_after_even_and_even_after_uneven():
    even, odd = fresh(2), uneven(0, 2)
    cache = Cache().append(*even).append(*odd)
    assert cache.lengths.tolist() == [2, 4]
    again = cache.append(*(more := fresh(1)))
    assert again.lengths.tolist() == [3, 5]
    assert torch.equal(again.keys.tensor[0, :, 2], more[0][0, :, 0])
    assert torch.equal(again.keys.tensor[1, :, 4], more[0][1, :, 0])


def test_select_reorders_repeats_and_drops():
    cache = Cache().append(*uneven(3, 1, 2))
    before = rows(cache)
    chosen = cache.select(torch.tensor([2, 2, 0]))
    assert chosen.lengths.tolist() == [2, 2, 3]
    assert_same(rows(chosen), [before[2], before[2], before[0]])
    short = cache.select(torch.tensor([1]))
    assert (short.longest, short.keys.tensor.shape[2]) == (1, 1)
    assert cache.select(torch.tensor([], dtype=torch.long)).longest == 0


def test_repeated_rows_are_independent():
    copies = Cache().append(*fresh(2)).select(torch.tensor([1, 1]))
    grown = copies.append(*(new := fresh(1)))
    assert torch.equal(grown.keys.tensor[:, :, 2:], new[0])
    assert torch.equal(grown.keys.tensor[0, :, :2], grown.keys.tensor[1, :, :2])


def test_select_and_append_nothing():
    assert Cache().select(torch.tensor([0])).longest == 0
    cache = Cache().append(*fresh(2))
    again = cache.append(*fresh(0))
    assert_same(rows(again), rows(cache))


def test_capacity_doubles_without_other_copies():
    cache, capacities, places = Cache(), [], []
    for _ in range(100):
        cache = cache.append(*fresh(1))
        capacities.append(cache.capacity)
        places.append((cache.keys.tensor.data_ptr(), cache.values.tensor.data_ptr()))
    changes = [(a, b) for a, b in itertools.pairwise(capacities) if a != b]
    assert all(b >= 2 * a for a, b in changes)
    assert (
        len(set(places)) == len(changes) + 1 <= 7
    )  # one address per capacity, so nothing else was copied
    assert capacities[-1] <= 200


def test_limit_bounds_capacity_and_raises_beyond():
    cache = Cache(limit=5).append(*fresh(4))
    assert cache.capacity == 5
    full = cache.append(*fresh(1))
    assert (full.longest, full.capacity) == (5, 5)
    with pytest.raises(RegardError, match=r"^this cache is limited to 5 positions; got 6$"):
        full.append(*fresh(1))
    with pytest.raises(RegardError, match=r"^this cache is limited to 5 positions; got 7$"):
        cache.select(torch.tensor([0, 1])).append(*uneven(1, 3))


def test_limit_counts_positions_without_padding():
    cache = Cache(limit=4).append(*uneven(3, 1)).append(*uneven(1, 3))
    assert cache.lengths.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("start", "one", "other"),
    [
        (fresh, lambda: fresh(2), lambda: fresh(1)),
        (
            lambda n: uneven(n, 1),
            lambda: uneven(0, 2),
            lambda: uneven(0, 1),
        ),  # nothing new for the longest row
        (lambda n: uneven(n, 1), lambda: uneven(0, 1), lambda: uneven(2, 1)),
        (lambda n: uneven(n, 1), lambda: fresh(1), lambda: uneven(0, 2)),
        (fresh, lambda: uneven(0, 1), lambda: uneven(1, 0)),
    ],
    ids=["even", "longest-adds-nothing", "then-more", "mixed", "from-even"],
)
def test_branches_of_a_cache_are_independent(start, one, other):
    trunk = Cache().append(*start(3))
    trunk = trunk.append(*fresh(1))  # there is free capacity, which both branches might write to
    before = rows(trunk)
    left = trunk.append(*one())
    left_before = rows(left)
    right = trunk.append(*other())
    right_before = rows(right)
    left_further, right_further = left.append(*fresh(1)), right.append(*fresh(1))
    assert_same(rows(trunk), before)
    assert_same(rows(left), left_before)
    assert_same(rows(right), right_before)
    for further, branch in ((left_further, left_before), (right_further, right_before)):
        for (keys, values), (old_keys, old_values) in zip(rows(further), branch, strict=True):
            assert torch.equal(keys[:, :-1], old_keys)
            assert torch.equal(values[:, :-1], old_values)


def test_append_with_other_row_count_is_an_error():
    with pytest.raises(ShapeError, match=r"^this cache has 2 rows; got keys for 3$"):
        Cache().append(*fresh(1)).append(*fresh(1, batch=3))


@pytest.mark.parametrize(
    "shape", [(1, 3, 4), (2, 3, 2), (2, 1, 4)], ids=["rows", "positions", "groups"]
)
def test_append_needs_one_value_per_key(shape: tuple[int, int, int]):
    with pytest.raises(ShapeError) as caught:
        Cache().append(torch.randn(2, 3, 4, DIM), torch.randn(*shape, OUT))
    assert (
        str(caught.value)
        == f"each key needs one value; got (rows, kv_heads, positions) (2, 3, 4) and {shape}"
    )


def test_cache_refuses_gradients():
    keys, values = fresh(1)
    with pytest.raises(
        RegardError, match=r"^a cache stores no gradients; decode under torch\.no_grad\(\)$"
    ):
        Cache().append(keys.requires_grad_(), values)
    with torch.no_grad():
        assert Cache().append(keys, values).longest == 1


def test_empty_cache_raises():
    for part in ("keys", "values"):
        with pytest.raises(
            RegardError,
            match=r"^this cache is empty; append keys and values before attending to it$",
        ):
            getattr(Cache(), part)
    assert (Cache().capacity, Cache().offset) == (0, 0)


def test_cache_refuses_gradients_of_values():
    keys, values = fresh(1)
    with pytest.raises(RegardError, match="a cache stores no gradients"):
        Cache().append(keys, values.requires_grad_())


def test_append_needs_the_same_heads_dim_and_dtype():
    keys = torch.randn(2, 2, 3, 4)
    cache = Cache().append(keys, keys)
    for other in (keys[:, :1], keys[..., :1], keys.half()):
        with pytest.raises(ShapeError, match="this cache stores"):
            cache.append(other, other)
    assert cache.append(keys, keys).longest == 6
