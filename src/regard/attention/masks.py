"""Masks: which keys a query may attend to (`True` = may). Predicates on a Site; joined by & and |.

Register your own with `@MASKS.register("name")` on a subclass of `Mask`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from regard.axes import Site
from regard.errors import RegardError
from regard.registry import Registry

_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}


class MaskBounds(NamedTuple):
    """A mask as bounds: low ≤ key − query ≤ high and key < stop. None: no such bound."""

    low: int | None = None
    high: int | None = None
    stop: int | Tensor | None = None

    def __and__(self, other: MaskBounds) -> MaskBounds:
        """Both bounds at once."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        stops = [stop for stop in (self.stop, other.stop) if stop is not None]
        stop = torch.minimum(*map(torch.as_tensor, stops)) if len(stops) == 2 else None
        return MaskBounds(
            max(lows, default=None), min(highs, default=None), stops[0] if len(stops) == 1 else stop
        )


class Mask:
    """A predicate on a Site."""

    formula: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    def __call__(self, site: Site) -> Tensor:
        raise NotImplementedError

    def bounds(self) -> MaskBounds | None:
        """The same mask as bounds, for kernels; None if it cannot be written that way."""
        return None

    def __and__(self, other: Mask) -> Mask:
        check_mask(other)
        if isinstance(self, Everything):
            return other
        return self if isinstance(other, Everything) else Intersection(self, other)

    def __or__(self, other: Mask) -> Mask:
        check_mask(other)
        return everything if everything in (self, other) else Union(self, other)


def check_mask(mask: object) -> None:
    """Raise if this is not a mask."""
    if not isinstance(mask, Mask):
        got = f"{mask!r:.80}"
        if isinstance(mask, Tensor):  # printing it would make a GPU wait
            got = f"a tensor of shape {tuple(mask.shape)}"
        raise RegardError(
            f"mask must be a Mask such as causal or window(8), joined by & and |; got {got}"
        )


@dataclass(frozen=True)
class Everything(Mask):
    """Every query may attend to every key."""

    formula = "true"
    paper = "Vaswani et al. 2017, §3.2.3 (encoder)"

    def __call__(self, site: Site) -> Tensor:
        return site.key >= 0

    def bounds(self) -> MaskBounds:
        return MaskBounds()

    def __repr__(self) -> str:
        return "everything"


@dataclass(frozen=True)
class Causal(Mask):
    """A query may attend to its own position and those before it."""

    formula = "key ≤ query"
    paper = "Vaswani et al. 2017, §3.2.3 (decoder)"

    def __call__(self, site: Site) -> Tensor:
        return site.key <= site.query

    def bounds(self) -> MaskBounds:
        return MaskBounds(high=0)

    def __repr__(self) -> str:
        return "causal"


@dataclass(frozen=True)
class Window(Mask):
    """Keys at distance less than `width`, itself included."""

    width: int

    formula = "|query − key| < width"
    paper = "Beltagy et al. 2020, §3.1"

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or isinstance(self.width, bool):
            raise RegardError(f"window width must be a whole number; got {self.width!r:.40}")
        if self.width < 1:
            raise RegardError(
                f"window width must be at least 1 (1 = only itself); got {self.width}"
            )

    def __call__(self, site: Site) -> Tensor:
        return (site.query - site.key).abs() < self.width

    def bounds(self) -> MaskBounds:
        return MaskBounds(1 - self.width, self.width - 1)

    def __repr__(self) -> str:
        return f"window({self.width})"


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """The first `length` keys, one number for the batch or one per sequence.

    `causal | prefix(n)` is a prefix LM.
    """

    length: int | Int[Tensor, " batch"]

    formula = "key < length"
    paper = "Raffel et al. 2020, §3.2.1"

    def __post_init__(self) -> None:
        length = self.length
        whole = length.dtype in _INTEGERS if isinstance(length, Tensor) else type(length) is int
        if not whole:
            raise RegardError(f"prefix length must be whole numbers; got {length!r:.40}")
        if (torch.as_tensor(self.length) < 0).any():
            raise RegardError(f"prefix length must be at least 0; got {self.length}")

    def __call__(self, site: Site) -> Tensor:
        if not isinstance(self.length, Tensor):
            return site.key < self.length
        if site.batch.ndim and len(site.batch) != len(self.length):
            raise RegardError(
                f"prefix has {len(self.length)} lengths for a batch of {len(site.batch)}; give "
                "one per sequence"
            )
        return site.key < self.length[site.batch]

    def bounds(self) -> MaskBounds:
        return MaskBounds(stop=self.length)

    def __repr__(self) -> str:
        return f"prefix({self.length})"


@dataclass(frozen=True, eq=False)
class PaddingMask(Mask):
    """The first `lengths` keys of each row: hides the padding that a backend added."""

    lengths: Int[Tensor, " batch"]

    def __eq__(self, other: object) -> bool:  # all layers share one tensor of lengths per batch
        return isinstance(other, PaddingMask) and self.lengths is other.lengths

    def __hash__(self) -> int:
        return id(self.lengths)

    def __call__(self, site: Site) -> Tensor:
        return site.key < self.lengths[site.batch]

    def bounds(self) -> MaskBounds:
        return MaskBounds(stop=self.lengths)


@dataclass(frozen=True)
class Intersection(Mask):
    """Keys that both masks allow."""

    left: Mask
    right: Mask

    def __call__(self, site: Site) -> Tensor:
        return self.left(site) & self.right(site)

    def bounds(self) -> MaskBounds | None:
        left, right = self.left.bounds(), self.right.bounds()
        return None if left is None or right is None else left & right

    def __repr__(self) -> str:
        return f"({self.left} & {self.right})"


@dataclass(frozen=True)
class Union(Mask):
    """Keys that either mask allows."""

    left: Mask
    right: Mask

    def __call__(self, site: Site) -> Tensor:
        return self.left(site) | self.right(site)

    def __repr__(self) -> str:
        return f"({self.left} | {self.right})"


everything = Everything()
causal = Causal()
window = Window
prefix = Prefix

MASKS: Registry[type[Mask]] = Registry(
    "mask", {"everything": Everything, "causal": Causal, "window": Window, "prefix": Prefix}
)
