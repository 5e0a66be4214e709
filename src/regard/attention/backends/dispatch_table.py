"""Measured: the order in which `auto` tries backends, case by case; the first that can is taken.

Found with `regard bench`, benchmarks/attention.py and benchmarks/gpu_kernels.py on one H200 (torch 2.11) and on two
Neoverse-N1 cores (torch 2.13). `regard bench` measures all cases on your own device, and says where this table is wrong
for it.
"""

from __future__ import annotations

SHORT, LONG = 128, 256  # tokens of the longest sequence: short up to the first, long from the second on
LENGTHS = ("short", "middle", "long")
Case = tuple[str, str, str]  # the device, what makes the scores, and whether the sequences have one length

# A row for each case, a column for each of LENGTHS.
MEASURED: dict[Case, tuple[str, str, str]] = {
    # One length and no bias: the library's kernel, but for sentences that fit into one tile of ours.
    ("cuda", "plain", "even"): ("triton sdpa reference", "sdpa reference", "sdpa reference"),
    ("cuda", "plain", "uneven"): ("triton sdpa reference",) * 3,
    # A bias makes sdpa write out a map of the whole attention; a short one still costs less than flex.
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

_ORDERS = {case: tuple(tuple(names.split()) for names in row) for case, row in MEASURED.items()}


def order(device: str, score: str, rows: str, longest: int) -> tuple[str, ...]:
    """The backends to try, the fastest first: one look into the table, for every attention of every step asks."""
    return _ORDERS[device, score, rows][(longest > SHORT) + (longest >= LONG)]
