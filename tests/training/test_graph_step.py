"""Steps on static batches, and prefetching. CUDA graphs themselves are tested in tests/gpu."""

import math

import numpy as np
import pytest
import torch

from regard.config import TrainSettings, TransformerSettings
from regard.errors import RegardError
from regard.models import build
from regard.ragged import Ragged
from regard.text import Batch, Batches, StaticShape
from regard.text.bucketing import plan_batches
from regard.training.distributed import World
from regard.training.graph_step import GraphStep, Prefetcher
from regard.training.trainer import Trainer

CPU = torch.device("cpu")


class Three(Batches):
    """Three batches to an epoch."""

    batch_tokens = 100

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(5)
        self.asked: list[tuple[int, int]] = []
        self.made = []
        for _ in range(3):
            sizes = torch.randint(1, 9, (2, 6), generator=random).tolist()
            sides = [
                Ragged.of([torch.randint(3, 12, (n,), generator=random) for n in side])
                for side in sizes
            ]
            self.made.append(Batch(*sides, torch.arange(6), 6, sum(sizes[1]), sum(sizes[0])))

    def next_batch(self, epoch: int, step: int) -> tuple[int, int, Batch]:
        epoch, step = (epoch, step) if step < 3 else (epoch + 1, 0)
        self.asked.append((epoch, step))
        return epoch, step, self.made[step]


def trainer() -> Trainer:
    torch.manual_seed(2)
    model = build(
        TransformerSettings(
            width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=16, dropout=0
        ),
        12,
        12,
    )
    return Trainer(model, Three(), TrainSettings(), 20, World(1, 0, CPU), rate=1e-2)


def test_static_batches_give_the_same_updates():
    plain, full = trainer(), trainer()
    full.graph_step = GraphStep(full._update_from, batch_tokens=100, device=CPU, replay=False)
    full.prefetcher = Prefetcher(full.batches, full.graph_step.pack)
    for _ in range(7):
        torch.testing.assert_close(full.advance()[0], plain.advance()[0], atol=1e-5, rtol=0)
    assert (full.epoch, full.epoch_step) == (plain.epoch, plain.epoch_step) == (2, 1)
    assert 0 < len(full.graph_step.buffers) <= 3
    for (name, ours), theirs in zip(
        full.model.named_parameters(), plain.model.parameters(), strict=True
    ):
        if not name.endswith("keys.bias"):  # its gradient is rounding and nothing else
            torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=0, msg=name)


def test_buffers_hold_only_the_latest_batch():
    seen = []
    batches = Three()
    graph_step = GraphStep(
        lambda batch: seen.append(batch.source.lengths.tolist()) or torch.zeros(()),
        batch_tokens=9_000,
        device=CPU,
    )
    graph_step.replay = False
    for batch in batches.made:
        prepared = graph_step.pack(batch)
        assert prepared is not None
        graph_step(*prepared, 0.1)
    assert len(graph_step.buffers) == 1  # coarse grains: one shape for all
    assert [lengths[:6] for lengths in seen] == [
        (batch.source.lengths + 1).tolist() for batch in batches.made
    ]


def test_the_number_of_shapes_stays_small():
    """Each shape costs a capture, so a long run must not keep capturing new ones."""
    random = np.random.default_rng(1)
    source = np.clip(np.rint(random.lognormal(math.log(24.5), 0.5, 60_000)), 5, 60).astype(np.int64)
    target = np.clip(np.rint(source * random.lognormal(0, 0.15, 60_000)), 5, 60).astype(np.int64)
    graph_step = GraphStep(
        lambda batch: batch.token_weight, batch_tokens=12_000, device=CPU, replay=False
    )
    seen, steps, after = set(), 0, []
    for epoch in range(4):
        made = plan_batches(source, target, batch_tokens=12_000, seed=1, epoch=epoch)
        for step in range(len(made)):
            sides = [_blank(lengths[made.batch(step)]) for lengths in (source, target)]
            batch = Batch(*sides, torch.arange(len(sides[0])), 1, 1, 1)
            seen.add(StaticShape.from_batch(batch, graph_step.granularity))
            steps += 1
        after.append(len(seen))
    assert steps > 1_000
    assert after[-1] <= 64  # benchmarks/gpu_training.py asks for no more of an epoch
    assert after[-1] - after[-2] <= 0.03 * len(made)  # what is new in the last epoch: hardly a step


def _blank(lengths: np.ndarray) -> Ragged:
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    return Ragged(torch.zeros(int(offsets[-1]), dtype=torch.int64), offsets)


def test_out_of_memory_in_a_graph_falls_back_to_eager():
    run, other = trainer(), trainer()

    def no_memory(*given: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    run.graph_step = GraphStep(no_memory, batch_tokens=100, device=CPU, replay=False)
    run.prefetcher = Prefetcher(run.batches, run.graph_step.pack)
    assert torch.equal(run.advance()[0], other.advance()[0])
    assert run.graph_step is None
    assert torch.equal(run.advance()[0], other.advance()[0])


def test_out_of_memory_between_optimizers_stops_the_run(monkeypatch: pytest.MonkeyPatch):
    run = trainer()
    run.graph_step = GraphStep(run._update_from, batch_tokens=100, device=CPU, replay=False)
    run.prefetcher = Prefetcher(run.batches, run.graph_step.pack)
    assert len(run.optimizers) > 1

    def no_memory() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(run.optimizers[-1], "step", no_memory)
    with pytest.raises(RegardError, match="while weights were updated, at step 1"):
        run.advance()  # done again, the first optimizer's weights would be moved twice


def test_the_next_batch_is_prefetched():
    batches = Three()
    prefetcher = Prefetcher(
        batches, lambda batch: (StaticShape(1, 1, 1, 16, 16), batch.source.values)
    )
    epoch, step, batch, prepared = prefetcher.take(0, 2)
    assert (epoch, step) == (0, 2)
    assert prepared is not None
    assert prepared[1] is batch.source.values
    assert prefetcher._next is not None
    prefetcher._next[2].result()
    assert batches.asked == [(0, 2), (1, 0)]  # the next epoch's first
    assert prefetcher.take(0, 3)[:2] == (1, 0)
    prefetcher.take(0, 1, last=True)  # elsewhere than foreseen: what was prepared is dropped
    assert prefetcher._next is None


def test_without_packing_nothing_is_prefetched():
    batches = Three()
    prefetcher = Prefetcher(batches, None)
    assert prefetcher.take(0, 0)[3] is None
    assert batches.asked == [(0, 0)]
