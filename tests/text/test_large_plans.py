"""Plans of many pairs: pairs sorted by length, and a few bytes for each."""

import tracemalloc

import numpy as np
import pytest

from regard.text.bucketing import plan_batches, sort_by_length


@pytest.mark.parametrize("most", [2, 300, 1 << 15, 1 << 20])
def test_pairs_are_sorted_by_length_and_place(most: int):
    draw = np.random.default_rng(most)
    source, target = draw.integers(0, most, (2, 5_000))
    source[7], target[7] = most - 1, most - 1
    expected = sorted(
        range(5_000), key=lambda i: (max(source[i], target[i]), target[i], source[i], i)
    )
    assert sort_by_length(source, target).tolist() == expected


def test_a_plan_takes_a_few_bytes_per_pair():
    """Its order takes four; sorting all pairs at once would take over forty."""
    count = 1 << 20
    lengths = np.random.default_rng(1).integers(1, 20, (2, count)).astype(np.int32)
    tracemalloc.start()
    try:
        plan = plan_batches(*lengths, batch_tokens=4_096, seed=1, epoch=0)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (np.bincount(plan.order, minlength=count) == 1).all()
    assert kept < 5 * count
    assert peak < 5 * count + 25e6  # one chunk
