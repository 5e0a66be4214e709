"""Dispatch table: the order in which `auto` tries backends in each case.

Measured with `regard bench`, benchmarks/attention.py and benchmarks/gpu_kernels.py on one H200
(torch 2.11) and on two Neoverse-N1 cores (torch 2.13). `regard bench` measures all cases on your
device and reports where this table is wrong for it.
"""

from __future__ import annotations

SHORT, LONG = 128, 256  # the longest sequence: "short" up to SHORT tokens, "long" from LONG on
LENGTHS = ("short", "middle", "long")
Case = tuple[str, str, str]  # device; "plain", "biased" or "additive" scores; "even" or "uneven"

# A row per case, a column for each of LENGTHS.
DISPATCH: dict[Case, tuple[str, str, str]] = {
    # Equal lengths without a bias: torch's kernel, except for sentences that fit one of our tiles.
    ("cuda", "plain", "even"): ("triton sdpa reference", "sdpa reference", "sdpa reference"),
    ("cuda", "plain", "uneven"): ("triton sdpa reference",) * 3,
    # With a bias, sdpa materialises the attention matrix; if it is short that is faster than flex.
    ("cuda", "biased", "even"): (*("triton sdpa reference",) * 2, "triton flex sdpa reference"),
    ("cuda", "biased", "uneven"): (*("triton sdpa reference",) * 2, "triton flex sdpa reference"),
    ("cuda", "additive", "even"): ("triton reference",) * 3,
    ("cuda", "additive", "uneven"): ("triton reference",) * 3,
    ("cpu", "plain", "even"): ("sdpa reference",) * 3,
    ("cpu", "plain", "uneven"): ("sdpa reference",) * 3,
    ("cpu", "biased", "even"): ("sdpa reference",) * 3,
    ("cpu", "biased", "uneven"): ("sdpa reference",) * 3,
    ("cpu", "additive", "even"): ("reference",) * 3,
    ("cpu", "additive", "uneven"): ("reference",) * 3,
}

_ORDERS = {case: tuple(tuple(names.split()) for names in row) for case, row in DISPATCH.items()}


def backend_order(device: str, score: str, rows: str, longest: int) -> tuple[str, ...]:
    """The backends to try, fastest first. Called for every attention, so it is one lookup."""
    return _ORDERS[device, score, rows][(longest > SHORT) + (longest >= LONG)]
