"""Whole training steps on a GPU: captured as not captured, fused as plain, and without waiting."""

import pytest
import torch

from regard.config import TrainSettings, TransformerSettings
from regard.models import build
from regard.positions import POSITIONS
from regard.ragged import Ragged
from regard.text import Batch, Batches
from regard.training.distributed import World
from regard.training.trainer import Trainer

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
CUDA = torch.device("cuda")


class RepeatedBatches(Batches):
    """A few batches of random pairs, repeated."""

    def __init__(self, count: int = 3, longest: int = 20) -> None:
        random = torch.Generator().manual_seed(5)
        self.batch_tokens, self._latest = 600, None
        self.made = [_batch(random, longest) for _ in range(count)]

    def steps(self, epoch: int) -> int:
        return 1_000

    def next_batch(self, epoch: int, step: int) -> tuple[int, int, Batch]:
        return epoch, step, self.made[step % len(self.made)]


def _batch(random: torch.Generator, longest: int) -> Batch:
    lengths = torch.randint(1, longest, (2, 20), generator=random).tolist()
    sides = [
        Ragged.of([torch.randint(3, 40, (n,), generator=random) for n in side]) for side in lengths
    ]
    return Batch(*sides, torch.arange(20), 20, sum(lengths[1]), sum(lengths[0]))


def losses(
    capture: bool,
    precision: str = "bfloat16",
    count: int = 12,
    *,
    optimizer: str = "muon",
    rdrop: float = 0.0,
    **model: object,
) -> tuple[list[float], Trainer]:
    settings = TransformerSettings(
        width=64,
        heads=2,
        encoder_layers=2,
        decoder_layers=2,
        ffn_width=128,
        **{"dropout": 0.1, **model},
    )
    torch.manual_seed(1)
    built = build(settings, 40, 40).to(CUDA)
    train = TrainSettings(
        precision=precision, cuda_graphs=capture, optimizer=optimizer, rdrop=rdrop
    )
    trainer = Trainer(built, RepeatedBatches(), train, 100, World(1, 0, CUDA), rate=1e-3)
    found = torch.stack([trainer.advance()[0].clone() for _ in range(count)]).tolist()
    return found, trainer


@GPU
@pytest.mark.parametrize("position", POSITIONS)
def test_captured_steps_equal_uncaptured_steps(position: str):
    (captured, one), (eager, other) = (
        losses(capture, position=position) for capture in (True, False)
    )
    assert one.graph_step is not None
    assert len(one.graph_step.graphs) == len(one.graph_step.buffers) > 0
    assert other.graph_step is not None
    assert not other.graph_step.graphs
    assert captured == eager  # to the last bit, dropout included
    for ours, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@GPU
def test_captured_rdrop_steps_equal_uncaptured_steps():
    (captured, one), (eager, other), (once, _) = (
        losses(capture, rdrop=rdrop) for capture, rdrop in ((True, 2.0), (False, 2.0), (True, 0.0))
    )
    assert captured == eager
    assert (
        captured[0] > once[0]
    )  # two dropout masks give two distributions, so the KL term is positive
    for ours, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@GPU
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_fused_training_on_a_gpu_equals_a_cpu(optimizer: str):
    settings = TransformerSettings(
        width=64, heads=2, encoder_layers=2, decoder_layers=2, ffn_width=128, dropout=0.0
    )
    found = []
    for device in (CUDA, torch.device("cpu")):
        torch.manual_seed(1)
        model = build(settings, 40, 40).to(device)
        train = TrainSettings(optimizer=optimizer, precision="float32")
        trainer = Trainer(model, RepeatedBatches(), train, 100, World(1, 0, device), rate=1e-3)
        found.append([float(trainer.advance()[0]) for _ in range(10)])
    torch.testing.assert_close(
        *map(torch.tensor, found), atol=0.0, rtol=2e-3 if optimizer == "muon" else 1e-4
    )


@GPU
def test_long_sequences_are_trained_without_graphs():
    settings = TransformerSettings(
        width=64, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=128
    )
    model = build(settings, 40, 40).to(CUDA)
    batches = RepeatedBatches(longest=300)
    trainer = Trainer(
        model, batches, TrainSettings(precision="bfloat16"), 100, World(1, 0, CUDA), rate=1e-3
    )
    assert all(torch.isfinite(trainer.advance()[0]) for _ in range(7))
    assert trainer.graph_step is not None
    assert not trainer.graph_step.graphs


@GPU
def test_fused_captured_steps_equal_plain_bfloat16():
    (fused, one), (plain, other) = (
        losses(capture, dropout=0.0, attention_backend=backend)
        for capture, backend in ((True, "auto"), (False, "reference"))
    )
    assert one.graph_step is not None
    assert other.graph_step is None
    torch.testing.assert_close(torch.tensor(fused), torch.tensor(plain), atol=0.0, rtol=5e-3)


@GPU
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_captured_steps_never_wait_for_the_gpu():
    _, trainer = losses(True)
    assert trainer.graph_step is not None
    # From here on, only replays.
    assert len(trainer.graph_step.graphs) == len(trainer.graph_step.buffers) > 0
    try:
        torch.cuda.set_sync_debug_mode("error")
        found = [trainer.advance()[0] for _ in range(6)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.stack(found).isfinite().all()


@GPU
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_weights_and_optimizer_state_stay_float32(
    optimizer: str,
):
    found, trainer = losses(True, optimizer=optimizer)
    assert found != losses(True, "float32", optimizer=optimizer)[0]
    states = [
        x for one in trainer.optimizers for state in one.state.values() for x in state.values()
    ]
    tensors = [
        *trainer.model.parameters(),
        *(x for x in states if isinstance(x, torch.Tensor) and x.numel() > 1),
    ]
    assert len(tensors) > len([*trainer.model.parameters()])
    assert {x.dtype for x in tensors} == {torch.float32}
