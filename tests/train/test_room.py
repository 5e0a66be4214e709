"""Room: a step that would not fit is halved until it does."""

import pytest
import torch

from regard.config import TextSettings
from regard.text import Batches, Corpus
from regard.train.memory_probe import LEAST, ROOM, _hungriest, roomy
from regard.train.prepare import prepare
from tests.commands.small import written


def test_a_step_is_halved_until_it_leaves_enough_memory():
    tried = []

    def hungry(batch_tokens: int) -> int:
        tried.append(batch_tokens)
        return batch_tokens * 10

    assert roomy(40_000, hungry, total=round(120_000 / ROOM)) == 10_000
    assert tried == [40_000, 20_000, 10_000]


def test_memory_that_runs_out_counts_as_too_much():
    def hungry(batch_tokens: int) -> int:
        if batch_tokens > 8_000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 0

    assert roomy(30_000, hungry, total=1) == 7_500


@pytest.mark.parametrize("batch_tokens", [LEAST + 1, 3 * LEAST, 100])
def test_below_the_least_nothing_is_tried(batch_tokens):
    assert roomy(batch_tokens, lambda batch_tokens: 10**9, total=1) == min(batch_tokens, LEAST)


def test_the_hungriest_steps_have_the_most_pairs_and_the_longest(tmp_path):
    lines = [("ab" * (1 + i % 40), "c" * (1 + i % 40)) for i in range(400)]
    data = prepare(
        Corpus(written(tmp_path / "pairs.tsv", lines)), None, TextSettings(), 1, tmp_path / "data", lambda _: None
    )
    batches = Batches(data.pairs, batch_tokens=600, seed=1, max_tokens=data.limit)
    tried = _hungriest(batches)
    every = list(batches.epoch(0))
    assert max(len(batch) for batch in tried) == max(len(batch) for batch in every)
    assert max(batch.source.longest for batch in tried) == max(batch.source.longest for batch in every)
