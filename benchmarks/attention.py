"""Attention forward and backward: `auto` and the reference, the arithmetic ceiling, and memory.

python benchmarks/attention.py        # on a GPU if there is one, otherwise on the CPU
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from harness import Check, machine, matmul_rate, median, no_options, ratios, report

from regard import Ragged, causal, everything
from regard.attention import Attention, Mask
from regard.attention.scores import ScaledDot


def batch(lengths: list[int], heads: int, dim: int, dtype: torch.dtype = torch.float32) -> Ragged:
    """Random queries (or keys, or values) of these lengths."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens = torch.randn(sum(lengths), heads, dim, device=device, dtype=dtype, requires_grad=True)
    return Ragged(tokens, torch.tensor([0, *lengths], device=device).cumsum(0))


def training_step(
    attention: Attention, sequences: list[Ragged], mask: Mask
) -> Callable[[], object]:
    """Forward and backward."""
    q, k, v = (sequences[0].like(x.values) for x in sequences)  # one layout: self-attention
    weight = torch.randn_like(v.values)

    def run() -> object:
        return torch.autograd.grad(
            attention(q, k, v, mask=mask).values, [q.values, k.values, v.values], weight
        )

    return run


def operations(lengths: list[int], heads: int, dim: int, mask: Mask) -> float:
    """FLOP of a fused kernel: two products forward, five backward; half the pairs if causal."""
    pairs = sum(n * (n + 1) / 2 if mask == causal else n * n for n in lengths)
    return 7 * 2 * pairs * heads * dim


def compare(
    name: str, lengths: list[int], heads: int, dim: int, mask: Mask, rate: float
) -> tuple[float, float]:
    """The speed ratio of auto over reference, and its arithmetic ceiling."""
    data = [batch(lengths, heads, dim) for _ in range(3)]
    steps = [
        training_step(Attention(ScaledDot(heads, dim), backend=backend), data, mask)
        for backend in ("reference", "auto")
    ]
    slow, fast, ratio = ratios(*steps)
    ceiling = slow / (operations(lengths, heads, dim, mask) / rate)
    times = f"reference {slow * 1e3:8.1f} ms   auto {fast * 1e3:8.1f} ms"
    print(f"{name:42} {times}   {ratio:5.2f} × of {ceiling:.1f}")
    return ratio, ceiling


def extra_memory(length: int, heads: int, dim: int) -> float:
    """Peak megabytes that attention itself adds for one long sequence, forward and backward."""
    data = [batch([length], heads, dim) for _ in range(3)]
    run = training_step(Attention(ScaledDot(heads, dim)), data, everything)
    if torch.cuda.is_available():
        run()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    small = training_step(
        Attention(ScaledDot(heads, dim)), [batch([64], heads, dim) for _ in range(3)], everything
    )
    small()  # first-use allocations of libraries do not count
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak (Linux)
    before = _resident("VmRSS")
    run()
    return (_resident("VmHWM") - before) / 2**10


def _resident(field: str) -> int:
    """Resident kilobytes of this process, now (VmRSS) or at its peak (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0])


def on_cpu() -> list[Check]:
    """The checks on a CPU."""
    rate = matmul_rate()
    print(f"{machine()}: matrix products {rate / 1e9:.0f} GF/s\n")
    torch.manual_seed(0)
    short = torch.randint(5, 16, (256,)).tolist()
    checks = []
    for name, lengths, heads, dim, mask, target in (
        ("256 × 5–15, 4 heads of 32", short, 4, 32, everything, 2.5),
        ("256 × 5–15, 4 heads of 32, causal", short, 4, 32, causal, 2.5),
        ("4 × 1024, 4 heads of 32", [1024] * 4, 4, 32, everything, 5.0),
        ("4 × 1024, 4 heads of 32, causal", [1024] * 4, 4, 32, causal, 5.0),
    ):
        ratio, ceiling = compare(name, lengths, heads, dim, mask, rate)
        checks.append(
            Check(f"{name}: auto over reference", ratio, ceiling, target, ratio >= target)
        )
    command = [
        sys.executable,
        __file__,
        "memory",
    ]  # a separate process, so that earlier peaks do not count
    peak = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    bytes_needed = (
        8 * 8192 * 64 * 4 * 5 / 2**20
    )  # output, its gradient's gradients: five tensors like the queries
    print(f"one sequence of 8192, 8 heads of 64: {peak:.0f} MB extra (an attention map takes 2048)")
    checks.append(Check("8192-long: peak extra MB", peak, bytes_needed, 300, peak < 300))
    return checks


def on_gpu() -> list[Check]:
    """sdpa and flex in bfloat16, compared with the matmul rate."""
    rate = matmul_rate(torch.bfloat16)
    print(f"{machine()}: matrix products {rate / 1e12:.0f} TF/s\n")
    checks = []
    torch.manual_seed(0)
    heads, dim = 16, 64
    for name, lengths, mask in (
        ("4 × 4096", [4096] * 4, everything),
        ("4 × 4096, causal", [4096] * 4, causal),
        ("16 × 1024, causal", [1024] * 16, causal),
        ("25 k tokens in 5–60", torch.randint(5, 61, (775,)).tolist(), everything),
    ):
        for backend in ("sdpa", "flex"):
            data = [batch(lengths, heads, dim, torch.bfloat16) for _ in range(3)]
            run = training_step(Attention(ScaledDot(heads, dim), backend=backend), data, mask)
            seconds = median(run, repeats=20, warmup=5)
            flops = operations(lengths, heads, dim, mask) / seconds
            print(
                f"{name:24} {backend:5} {seconds * 1e3:8.3f} ms  {flops / 1e12:6.1f} TF/s  "
                f"{flops / rate:4.0%} of the ceiling"
            )
            checks.append(
                Check(f"{name}, {backend}: TF/s", flops / 1e12, rate / 1e12, 0, flops > 0)
            )
    peak = extra_memory(8192, 8, 64)
    checks.append(
        Check("8192-long: peak extra MB", peak, 8 * 8192 * 64 * 4 * 5 / 2**20, 300, peak < 300)
    )
    return checks


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        print(extra_memory(8192, 8, 64))
    else:
        no_options(__doc__)
        report("attention", on_gpu() if torch.cuda.is_available() else on_cpu())
