"""Masks as tables, written by hand: a row for each query, a 1 where it may attend."""

import pytest
import torch

from regard import causal, everything, prefix, window
from regard.attention import MASKS, Mask
from regard.attention.masks import PaddingMask
from regard.axes import Offset, Site

HEADS, DIM = 3, 6


def table(mask: Mask, queries: int, keys: int, offset: Offset = 0, batch: int = 1) -> list:
    """What the mask allows to one head; a list of tables where there are several sequences."""
    site = Site.grid(
        torch.zeros(batch, HEADS, queries, DIM), torch.zeros(batch, HEADS, keys, DIM), offset
    )
    allowed = mask(site).expand(batch, HEADS, queries, keys)
    assert (allowed == allowed[:, :1]).all()  # no mask of ours tells heads apart
    tables = allowed[:, 0].int().tolist()
    return tables[0] if batch == 1 else tables


def test_everything():
    assert table(everything, 2, 3) == [[1, 1, 1], [1, 1, 1]]


def test_causal():
    assert table(causal, 3, 4) == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]


def test_causal_with_more_queries_than_keys():
    assert table(causal, 4, 2) == [[1, 0], [1, 1], [1, 1], [1, 1]]


def test_window_of_two_is_one_to_each_side():
    assert table(window(2), 4, 5) == [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]


def test_window_of_one_is_itself():
    assert table(window(1), 3, 4) == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_prefix_of_two():
    assert table(prefix(2), 3, 4) == [[1, 1, 0, 0]] * 3


def test_prefix_of_zero_and_beyond_the_end():
    assert table(prefix(0), 2, 3) == [[0, 0, 0]] * 2
    assert table(prefix(9), 2, 3) == [[1, 1, 1]] * 2


def test_prefix_per_sequence():
    assert table(prefix(torch.tensor([1, 0, 3])), 1, 4, batch=3) == [
        [[1, 0, 0, 0]],
        [[0, 0, 0, 0]],
        [[1, 1, 1, 0]],
    ]


def test_causal_and_window():
    assert table(causal & window(2), 4, 5) == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
    ]


def test_causal_or_prefix_is_a_prefix_language_model():
    assert table(causal | prefix(2), 4, 5) == [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
    ]


def test_and_binds_before_or_as_in_python():
    assert table(prefix(1) | causal & window(2), 3, 4) == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert table((prefix(1) | causal) & window(2), 3, 4) == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
    ]


@pytest.mark.parametrize(
    ("mask", "rows"),
    [
        (causal, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]),
        (window(2), [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]),
        (causal & window(2), [[0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]),
        (prefix(1), [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]),
    ],
    ids=str,
)
def test_masks_with_an_offset(mask: Mask, rows: list[list[int]]):
    assert table(mask, 2, 5, offset=2) == rows


def test_each_cache_row_has_its_own_position():
    tables = table(causal, 1, 4, offset=torch.tensor([3, 0, 1]), batch=3)
    assert tables == [[[1, 1, 1, 1]], [[1, 0, 0, 0]], [[1, 1, 0, 0]]]


def test_padding_mask_hides_padding():
    assert table(PaddingMask(torch.tensor([2, 0])), 1, 3, batch=2) == [[[1, 1, 0]], [[0, 0, 0]]]


def test_joining_with_everything_changes_nothing():
    assert (everything & causal) is causal
    assert (causal & everything) is causal
    assert (causal | everything) == everything
    assert (everything | window(2)) == everything


def test_masks_compare_and_print():
    assert window(2) == window(2)
    assert window(2) != window(3)
    assert (causal & window(2)) == (causal & window(2))
    assert (causal & window(2)) != (causal | window(2))
    assert str(causal & window(2) | prefix(3)) == "((causal & window(2)) | prefix(3))"
    assert {
        name: str(kind(2) if name in ("window", "prefix") else kind())
        for name, kind in MASKS.items()
    } == {
        "everything": "everything",
        "causal": "causal",
        "window": "window(2)",
        "prefix": "prefix(2)",
    }


def test_padding_masks_of_one_batch_are_equal():
    """All layers of a batch share one tensor of lengths, so a cached block mask serves them all."""
    lengths = torch.tensor([2, 3])
    assert PaddingMask(lengths) == PaddingMask(lengths)
    assert hash(causal & PaddingMask(lengths)) == hash(causal & PaddingMask(lengths))
    assert PaddingMask(lengths) != PaddingMask(lengths.clone())
