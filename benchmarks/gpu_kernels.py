"""Triton kernels compared with libraries on one GPU: ragged, biases, additive, ALiBi, rotary.

Times are device times. Needs a GPU and the package triton.

python benchmarks/gpu_kernels.py
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from harness import Check, machine, matmul_rate, no_options, report
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn

from regard.attention import SCORES, Attention, causal, everything
from regard.attention.backends import triton as backend
from regard.positions import T5, Alibi, Distance, Rotary
from regard.ragged import Ragged

HEADS, DIM = 8, 64
LONG, BATCH, MANY = 4096, 4, 32
Run = Callable[[], object]


def device_time(run: Run, *, graph: bool = False, count: int = 5, repeats: int = 9) -> float:
    """Median seconds on the device, over `count` runs at a time to hide the host; a CUDA `graph`
    hides it completely."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            run()
        run = captured.replay
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / count / 1e3)
    return statistics.median(times)


def random(*shape: int) -> torch.Tensor:
    """A random tensor that requires a gradient."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def step(forward: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> Run:
    """Forward and backward."""
    slope = torch.randn_like(forward())
    return lambda: torch.autograd.grad(forward(), leaves, slope)


def bandwidth() -> float:
    """Bytes/s of a large copy, read and written."""
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / device_time(lambda: b.copy_(a))


def short() -> list[Check]:
    """Short sentences: 25 k tokens in sentences of 5–60."""
    torch.manual_seed(0)
    lengths = torch.randint(5, 61, (775,)).tolist()
    leaves = [random(sum(lengths), HEADS, DIM) for _ in range(3)]
    layout = Ragged(leaves[0], torch.tensor([0, *lengths], device="cuda").cumsum(0))
    sequences = [layout.like(leaf) for leaf in leaves]
    ours = Attention(SCORES["scaled-dot"](HEADS, DIM), backend="triton")
    ends, longest = layout.offsets.int(), layout.longest
    rows = [random(len(lengths), HEADS, longest, DIM) for _ in range(3)]
    seen = (torch.arange(longest, device="cuda") < layout.lengths[:, None])[:, None, None, :]
    learned = Attention(ours.score, bias=Distance(HEADS, DIM), backend="triton").cuda().bfloat16()
    table, rotary = [learned.bias.table], Rotary(DIM)
    runs = {
        "triton": step(lambda: ours(*sequences).values, leaves),
        "triton, distance": step(lambda: learned(*sequences).values, leaves + table),
        "triton, rotary": step(
            lambda: backend.run(ours, *sequences, everything, 0, rotary).values, leaves
        ),
        "varlen": step(lambda: varlen_attn(*leaves, ends, ends, longest, longest), leaves),
        "sdpa, padded and masked": step(
            lambda: F.scaled_dot_product_attention(*rows, attn_mask=seen), rows
        ),
    }
    times = {name: device_time(run, graph=True, count=20) for name, run in runs.items()}
    floor = 11 * leaves[0].numel() * 2 / bandwidth()  # four tensors forward, seven backward
    for name, seconds in times.items():
        times_shown = f"{seconds * 1e3:7.3f} ms   bandwidth limit {floor * 1e3:.3f}"
        print(f"25 k tokens in 5–60, {name:24} {times_shown}")
    return [
        Check(f"short: {name} over triton", times[name] / times["triton"], times[name] / floor,
              target, times[name] / times["triton"] >= target)
        for name, target in (("varlen", 5.0), ("sdpa, padded and masked", 4.0))
    ]  # fmt: skip


def rates(
    name: str, forward: Callable[[], torch.Tensor], leaves: list[torch.Tensor], share: float
) -> list[float]:
    """TF/s forward, and of forward and backward."""

    @torch.no_grad()
    def alone() -> torch.Tensor:
        return forward()

    once = 4 * BATCH * MANY * LONG * LONG * DIM * share
    speeds = [
        work / device_time(run, graph=True) / 1e12
        for work, run in ((once, alone), (3.5 * once, step(forward, leaves)))
    ]
    print(
        f"{BATCH} × {LONG}, {MANY} heads of {DIM}, {name:22} {speeds[0]:4.0f} TF/s forward, "
        f"{speeds[1]:4.0f} with backward"
    )
    return speeds


def long() -> list[Check]:
    """Long sequences: learned biases, ALiBi and rotary at 4096."""
    torch.manual_seed(0)
    ceiling = matmul_rate(torch.bfloat16) / 1e12
    leaves, rows = (
        [random(*shape) for _ in range(3)]
        for shape in ((BATCH * LONG, MANY, DIM), (BATCH, MANY, LONG, DIM))
    )
    sequences = [Ragged.uniform(leaf, BATCH) for leaf in leaves]
    sequences = [sequences[0].like(leaf) for leaf in leaves]

    def made(bias: Any) -> Attention:
        attention = (
            Attention(SCORES["scaled-dot"](MANY, DIM), bias=bias, backend="triton")
            .cuda()
            .bfloat16()
        )
        for parameter in attention.parameters():
            torch.nn.init.normal_(parameter)
        return attention

    flex = torch.compile(flex_attention)
    results = {"flex, no bias": rates("flex, no bias", lambda: flex(*rows), rows, 1)}
    for name, bias in (("distance", Distance(MANY, DIM)), ("t5", T5(MANY)), ("no bias", None)):
        ours = made(bias)
        results[name] = rates(
            f"triton, {name}",
            lambda ours=ours: ours(*sequences).values,
            [*leaves, *ours.parameters()],
            1,
        )
    checks = []
    for name in ("distance", "t5"):
        for part, at, target in (("forward", 0, 0.8), ("with backward", 1, 0.7)):
            asked = target * results["flex, no bias"][at]
            checks.append(
                Check(
                    f"{name}: TF/s {part}",
                    results[name][at],
                    ceiling,
                    asked,
                    results[name][at] >= asked,
                )
            )
    ours, rotary = made(None), Rotary(DIM)
    rotated = rates(
        "triton, rotary",
        lambda: backend.run(ours, *sequences, everything, 0, rotary).values,
        leaves,
        1,
    )
    for at, part in enumerate(("forward", "with backward")):
        cost = 100 * (results["no bias"][at] / rotated[at] - 1)
        checks.append(Check(f"rotary: % more time {part}", cost, 0, 5, cost <= 5))

    def cudnn() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(*rows, is_causal=True)

    library = rates("cudnn, causal", cudnn, rows, 0.5)
    slopes = Alibi(MANY).cuda().slopes
    blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, LONG, LONG, device="cuda")
    peer = rates(
        "flex, ALiBi causal",
        lambda: flex(
            *rows, score_mod=lambda s, b, h, i, j: s - slopes[h] * (i - j), block_mask=blocks
        ),
        rows,
        0.5,
    )
    alibi = made(Alibi(MANY))
    speeds = rates(
        "triton, ALiBi causal", lambda: alibi(*sequences, mask=causal).values, leaves, 0.5
    )
    asked = 0.9 * library[0]
    checks.append(
        Check("alibi, causal: TF/s forward", speeds[0], ceiling, asked, speeds[0] >= asked)
    )
    for at, part in enumerate(("forward", "with backward")):
        ratio = speeds[at] / peer[at]
        checks.append(
            Check(f"alibi, causal: over flex, {part}", ratio, ceiling / peer[at], 1, ratio >= 1)
        )
    return checks


@triton.jit
def _tanhs(out, ROUNDS: tl.constexpr):  # noqa: N803
    x = tl.program_id(0) * 1e-6 + tl.arange(0, 2048) * 1e-4
    for _ in range(ROUNDS):
        x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    tl.store(out + tl.program_id(0) * 2048 + tl.arange(0, 2048), x)


def tanh_rate() -> float:
    """The GPU's tanh/s."""
    programs, rounds = 132 * 32, 512
    out = torch.empty(programs * 2048, device="cuda")
    return programs * 2048 * rounds / device_time(lambda: _tanhs[(programs,)](out, rounds))


def megabytes(run: Callable[[], object]) -> float:
    """Peak memory of a run beside what is already allocated, in megabytes."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def additive() -> list[Check]:
    """Additive scores: one map of 4096² × 256."""
    torch.manual_seed(0)
    dim = 256
    ceiling = tanh_rate() / 1e12
    ours = Attention(SCORES["additive"](1, dim), backend="triton").cuda().bfloat16()
    leaves = [random(1, 1, LONG, dim) for _ in range(3)]
    wanted = [*leaves, ours.score.v]
    run = step(lambda: ours(*leaves), wanted)
    twice = [random(1, 1, 2 * LONG, dim) for _ in range(3)]
    peak, further = (
        megabytes(one) for one in (run, step(lambda: ours(*twice), [*twice, ours.score.v]))
    )
    with torch.no_grad():
        forward = device_time(lambda: ours(*leaves), graph=True)
    both = device_time(run)

    @torch.compile
    def library(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, direction: torch.Tensor
    ) -> torch.Tensor:
        return (
            torch.softmax(
                (direction * torch.tanh(q[..., :, None, :] + k[..., None, :, :])).sum(-1), -1
            )
            @ v
        )

    compiled = device_time(step(lambda: library(*leaves, ours.score.v[0]), wanted), repeats=5)
    rate = LONG * LONG * dim / forward / 1e12
    print(f"additive 4096² × {dim}: forward {forward * 1e3:.2f} ms = {rate:.2f} T tanh/s "
          f"of {ceiling:.2f}; with "
          f"backward {both * 1e3:.2f} ms, compiled PyTorch {compiled * 1e3:.2f} ms; {peak:.0f} MB, "
          f"of 8192² {further:.0f}")  # fmt: skip
    ratio = compiled / both
    limit = compiled / (2 * LONG * LONG * dim / ceiling / 1e12)  # one tanh forward and one backward
    least = 4 * leaves[0].nbytes / 2**20  # the output and three gradients
    return [
        Check("additive: T tanh/s forward", rate, ceiling, 0.6 * ceiling, rate >= 0.6 * ceiling),
        Check("additive: compiled PyTorch over triton, with backward", ratio, limit, 4, ratio >= 4),
        Check("additive: MB", peak, least, 200, peak < 200),
        Check(
            "additive: MB of twice the length over MB",
            further / peak,
            1,
            2.2,
            further / peak <= 2.2,
        ),
    ]


if __name__ == "__main__":
    no_options(__doc__)
    print(f"{machine()}, triton {triton.__version__}\n")
    report("gpu_kernels", short() + long() + additive())
