"""Cases: the attentions that `regard bench` measures, and what was found: a case for every cell of the table that
`auto` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.attention import BACKENDS, SCORES, Attention, Mask, causal, everything
from regard.attention.backends import example_of, fastest
from regard.attention.backends.dispatch_table import LENGTHS
from regard.commands.timing import Timer
from regard.errors import BackendError
from regard.positions import Biasing, position
from regard.ragged import Ragged

ROWS = {  # by its row in the table; of biases both kinds: by distance alone, and by the query too
    "plain": "plain",
    "distance": "biased",
    "shaw": "biased",
    "additive": "additive",
}
SIZES = {"cuda": (8, 64, 24_576), "cpu": (4, 32, 768)}  # heads, their dim, and tokens in all
SPREAD = {  # the shortest and the longest sequence
    "cuda": {"short": (5, 60), "middle": (136, 248), "long": (512, 2048)},
    "cpu": {"short": (5, 25), "middle": (136, 248), "long": (256, 384)},
}


@dataclass(frozen=True)
class Case:
    """One attention to measure: its score or bias, and the lengths of its sequences."""

    score: str
    length: str
    rows: str
    lengths: list[int]
    heads: int
    dim: int
    mask: Mask

    def made(self, backend: str) -> Attention:
        """The attention of this case on a backend."""
        score = SCORES["additive" if self.score == "additive" else "scaled-dot"](self.heads, self.dim)
        if ROWS[self.score] != "biased":
            return Attention(score, backend=backend)
        sizes = {"width": self.heads * self.dim, "heads": self.heads, "dim": self.dim}
        bias = position(self.score, causal=self.mask == causal, **sizes)
        assert isinstance(bias, Biasing)
        return Attention(score, bias=bias, backend=backend)

    def floor(self, *, back: bool, products: float, copies: float, size: int) -> float:
        """Seconds that nothing can do without: two matrix products forward and five backward over what the mask allows,
        at the rate of large ones; or four tensors read and written forward, and seven more backward, if that is more.
        """
        pairs = sum(n * (n + 1) / 2 if self.mask == causal else n * n for n in self.lengths)
        values = sum(self.lengths) * self.heads * self.dim
        arithmetic = (14 if back else 4) * pairs * self.heads * self.dim / products
        return max(arithmetic, (11 if back else 4) * values * size / copies)


@dataclass
class Finding:
    """What one case took: seconds by backend, why others did not run, and what `auto` takes."""

    case: Case
    back: bool
    auto: str
    seconds: dict[str, float] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)

    @property
    def fastest(self) -> str:
        """The backend that took the least time."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def slower(self) -> float:
        """How many times as long as the fastest `auto` takes."""
        return self.seconds[self.auto] / self.seconds[self.fastest] if self.auto in self.seconds else float("inf")


def cases(device: str, mask: Mask = everything) -> Iterator[Case]:
    """Every score and bias, of every length, on sequences of one length and of many."""
    heads, dim, tokens = SIZES[device]
    draw = torch.Generator().manual_seed(1)
    for score in ROWS:
        for length in LENGTHS:
            least, most = SPREAD[device][length]
            count = max(2, 2 * tokens // (least + most))
            drawn = torch.randint(least, most, (count - 1,), generator=draw).tolist()
            for rows, lengths in (("even", [most] * (tokens // most)), ("uneven", [most, *drawn])):
                yield Case(score, length, rows, lengths, 1 if score == "additive" else heads, dim, mask)


def measure(case: Case, device: str, dtype: torch.dtype, *, back: bool, clock: Timer) -> Finding:
    """Every backend that can, on one case: forward alone, or forward and `back`."""
    sizes = sum(case.lengths), case.heads, case.dim
    leaves = [torch.randn(sizes, device=device, dtype=dtype, requires_grad=back) for _ in range(3)]
    queries = Ragged(leaves[0], torch.tensor([0, *case.lengths], device=device).cumsum(0))
    sequences = [queries.like(leaf) for leaf in leaves]
    with torch.set_grad_enabled(back):
        auto = fastest(
            case.made("auto").to(device, dtype), example_of(queries), case.mask, uneven=not queries.layout.is_uniform
        )
        found = Finding(case, back, auto)
        for name in BACKENDS:
            attention = case.made(name).to(device, dtype)
            wanted = [*leaves, *attention.parameters()] if back else []
            try:
                found.seconds[name] = clock(_step(attention, sequences, case.mask, wanted))
            except BackendError as error:
                found.cannot[name] = str(error).partition(": ")[2].partition(". Use")[0]
            except torch.OutOfMemoryError:
                found.cannot[name] = "it ran out of memory"
    return found


def _step(attention: Attention, sequences: list[Ragged], mask: Mask, wanted: list[Any]) -> Callable[[], object]:
    """Forward; and backward, where gradients are wanted."""
    slope = torch.ones_like(sequences[2].values)

    def step() -> object:
        made = attention(*sequences, mask=mask).values
        return torch.autograd.grad(made, wanted, slope) if wanted else made

    return step
