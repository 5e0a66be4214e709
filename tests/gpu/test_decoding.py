"""The kernels of decoding on a GPU against plain torch.

Run by hand where there is one (`pytest tests/gpu`), or under TRITON_INTERPRET=1."""

import pytest
import torch

from regard.attention.backends import triton
from regard.kernels.decoding import plain_operations
from regard.kernels.decoding.buffers import (
    BeamBuffers,
    GreedyBuffers,
    NormWeights,
    RotaryTable,
    SlotState,
)
from regard.positions import Rotary
from regard.search import LengthPenalty
from regard.search.constraints import NEG_INF as NEVER
from regard.text import END
from tests.contracts.cases import assert_as_good_as

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
pytestmark = [
    pytest.mark.skipif(not CUDA and not triton.is_interpreted(), reason="needs CUDA"),
    pytest.mark.filterwarnings(
        "ignore:invalid value encountered in subtract"
    ),  # numpy's, where the interpreter runs
]
SLOTS, CAPACITY = 4, 80


@pytest.fixture(scope="module")
def kernels():
    from regard.kernels.decoding import operations as decoding

    return decoding


def clock() -> SlotState:
    """Slots at 37, at the start, idle, and at the limit of 66."""
    rows = [[37, 0, 9, 66], [1, 1, 0, 1], [60, 70, 9, 66], [38, 0, 0, 0], [45, 1, 3, 32]]
    return SlotState(*torch.tensor(rows, dtype=torch.int32))


def on_device(things):
    """A copy on the device."""
    if isinstance(things, torch.Tensor):
        return things.to(DEVICE, copy=True)
    return type(things)(*map(on_device, things)) if isinstance(things, tuple) else things


def close(ours, theirs):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-5, atol=2e-5)


def active_rows(beams):
    return clock().active.bool().repeat_interleave(beams)


@pytest.mark.parametrize("line", [False, True], ids=["", "line"])
@pytest.mark.parametrize("rotated", [None, "halves", "neighbours"])
@pytest.mark.parametrize(
    ("beams", "heads", "groups", "dim"), [(1, 6, 3, 11), (3, 4, 4, 16), (5, 4, 1, 64)]
)
def test_cached_attention(kernels, beams, heads, groups, dim, rotated, line):
    rows, even = SLOTS * beams, dim // 2 * 2
    qkv, past = (
        torch.randn(rows, (heads + 2 * groups) * dim),
        torch.randn(rows, 2, groups, CAPACITY, dim),
    )
    beam = torch.randint(beams, (2, rows, CAPACITY), dtype=torch.int32)
    ancestors = (
        beam + (torch.arange(rows, dtype=torch.int32) // beams * beams)[None, :, None]
        if beams > 1
        else None
    )
    turn = (
        None
        if rotated is None
        else Rotary(dim, pairs=rotated, fraction=even / dim if even < dim else 1.0)
    )
    turns = None if turn is None else RotaryTable.of(turn, dim, CAPACITY, torch.device("cpu"))
    options = clock(), ancestors, turns, torch.randn(heads, CAPACITY) if line else None
    known = past.clone()
    expected = plain_operations.cached_attention(qkv, known, *options)
    written = on_device(past)
    found = kernels.cached_attention(on_device(qkv), written, *map(on_device, options))
    close(found[active_rows(beams)], expected[active_rows(beams)])
    close(written, known)


@pytest.mark.parametrize(
    ("beams", "heads", "groups", "dim"), [(1, 6, 3, 11), (3, 4, 4, 16), (5, 4, 1, 64)]
)
def test_cross_attention(kernels, beams, heads, groups, dim):
    qkv, memory = (
        torch.randn(SLOTS * beams, heads * dim),
        torch.randn(SLOTS, 2, groups, CAPACITY, dim),
    )
    expected = plain_operations.cross_attention(qkv, memory, clock())
    found = kernels.cross_attention(on_device(qkv), on_device(memory), on_device(clock()))
    close(found[active_rows(beams)], expected[active_rows(beams)])


@pytest.mark.parametrize("width", [24, 300])
@pytest.mark.parametrize("norm", ["layer", "rms", None])
@pytest.mark.parametrize("before", [True, False])
def test_residuals(kernels, width, norm, before):
    bias = torch.randn(width) if norm == "layer" else None
    options = None if norm is None else NormWeights(torch.randn(width), bias, 1e-5, before)
    tokens, table = torch.randint(9, (SLOTS * 2,), dtype=torch.int32), torch.randn(9, width)
    for places in (None, torch.randn(CAPACITY, width)):
        expected = plain_operations.embed(tokens, table, places, clock().time, options)
        found = kernels.embed(*map(on_device, (tokens, table, places, clock().time, options)))
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    x, y, weight = (
        torch.randn(SLOTS, width),
        torch.randn(SLOTS, 600),
        torch.randn(width, 600).t() / 25,
    )
    for bias in (None, torch.randn(width)):
        ours = on_device(x)
        normed = kernels.linear_add_norm(
            ours, on_device(y), weight.to(DEVICE), on_device(bias), on_device(options)
        )
        close(normed, plain_operations.linear_add_norm(x, y, weight, bias, options))
        close(ours, x)
    inner = torch.randn(SLOTS, 2 * width)
    close(kernels.swiglu(on_device(inner)), plain_operations.swiglu(inner))


@pytest.mark.parametrize(
    ("rows", "size", "columns"), [(1, 24, 40), (20, 300, 7), (320, 512, 1536), (70, 2048, 512)]
)
def test_linear_is_as_exact_as_float32(kernels, rows, size, columns):
    x, weight, bias = torch.randn(rows, size), torch.randn(columns, size).t(), torch.randn(columns)
    exact = x.double() @ weight.double() + bias.double()
    ours = kernels.linear(on_device(x), weight.to(DEVICE), on_device(bias))
    assert_as_good_as(
        ours, torch.addmm(on_device(bias), on_device(x), weight.to(DEVICE)), exact.to(DEVICE)
    )
    close(
        kernels.linear(on_device(x), weight.to(DEVICE), None, relu=True) / size,
        (exact - bias).relu().float() / size,
    )


@pytest.mark.parametrize("vocabulary", [7, 500, 5_000])
def test_greedy_step(kernels, vocabulary):
    logits = 3 * torch.randn(SLOTS, vocabulary)
    logits[0, END] = logits.max() + 1  # too soon
    buffers = GreedyBuffers(torch.zeros(SLOTS, dtype=torch.int32), *_tables())
    known, ours, time, times = clone(buffers), on_device(buffers), clock(), on_device(clock())
    plain_operations.greedy_step(logits, time, known, END)
    kernels.greedy_step(on_device(logits), times, ours, END)
    for one, other in zip((*ours, *times), (*known, *time), strict=True):
        close(one, other)
    assert int(known.history[3, 66]) == END
    assert int(known.history[0, 37]) != END


def _tables():
    history = torch.zeros(SLOTS, CAPACITY, dtype=torch.int32)
    return history, torch.zeros(SLOTS, CAPACITY), torch.full((SLOTS,), float("inf"))


def clone(buffers):
    return type(buffers)(*(table.clone() for table in buffers))


@pytest.mark.parametrize("vocabulary", [7, 500, 5_000])
@pytest.mark.parametrize(("beams", "best"), [(1, 1), (3, 2), (5, 1), (5, 5), (16, 3)])
def test_beam_step(kernels, vocabulary, beams, best):
    """Several steps, so that hypotheses and slots finish."""
    rows, whole, real = (
        SLOTS * beams,
        torch.zeros(3, SLOTS, CAPACITY, beams, dtype=torch.int32),
        torch.zeros,
    )
    scores = -torch.rand(SLOTS, beams).sort(1).values
    scores[1, 1:] = NEVER
    history, parents, enders = whole
    logps, ends, end_logps = real(3, SLOTS, CAPACITY, beams)
    length = LengthPenalty(0.7)
    buffers = BeamBuffers(
        torch.zeros(rows, dtype=torch.int32), scores, history, parents, logps,
        ends, enders, end_logps,
        torch.full((SLOTS, best), NEVER), torch.full((SLOTS,), float("inf")),
        torch.randint(rows, (2, rows, CAPACITY), dtype=torch.int32),
        torch.tensor([1.0, *(length.divisor(n) for n in range(1, CAPACITY + 2))]),
    )  # fmt: skip
    known, ours, time, times = clone(buffers), on_device(buffers), clock(), on_device(clock())
    for step in range(4):
        logits = 2 * torch.randn(rows, vocabulary)
        logits[:, END] += 2 + step
        was_active, now = time.active.bool(), time.time.long()
        plain_operations.beam_step(logits, time, known, END)
        kernels.beam_step(on_device(logits), times, ours, END)
        for name, one, other in zip(SlotState._fields, times, time, strict=True):
            assert one.tolist() == other.tolist(), name
        live = (known.scores > NEVER) & time.active.bool()[:, None]  # beams with probability
        ended = known.ends[was_active, now[was_active]] > NEVER
        for name, one, other in zip(BeamBuffers._fields, ours, known, strict=True):
            one = one.cpu()
            if name in ("ends", "enders", "end_logps"):
                one, other = (x[was_active, now[was_active]][ended] for x in (one, other))
            elif name in ("history", "parents", "logps"):
                one, other = (x[torch.arange(SLOTS), now][live] for x in (one, other))
            elif name in ("tokens", "scores"):
                one, other = (x.view(SLOTS, beams)[live] for x in (one, other))
            elif name == "ancestors":
                one, other = (
                    x.unflatten(1, (SLOTS, beams))[(now[0] + 1) % 2, 0, :, : now[0] + 1]
                    for x in (one, other)
                )
                one, other = (x[live[0]] for x in (one, other))
            elif name == "top":
                one, other = one.sort(1).values, other.sort(1).values
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, msg=name)
    assert (known.ends > NEVER).any()
