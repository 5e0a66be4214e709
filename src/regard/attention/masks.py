"""Masks: which keys a query may see. `True` = may attend. Written once, on a Site; joined by & and |."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from regard.axes import Site
from regard.errors import RegardError


class Mask:
    """A predicate on a Site."""

    formula: ClassVar[str]
    paper: ClassVar[str]

    def __call__(self, site: Site) -> Tensor:
        raise NotImplementedError

    def __and__(self, other: Mask) -> Mask:
        check(other)
        if isinstance(self, Everything):
            return other
        return self if isinstance(other, Everything) else Both(self, other)

    def __or__(self, other: Mask) -> Mask:
        check(other)
        return everything if everything in (self, other) else Either(self, other)


def check(mask: object) -> None:
    """Raise for what is none of these."""
    if not isinstance(mask, Mask):
        raise RegardError(f"a mask is causal, window(8) and the like, joined by & and |; got {mask!r:.80}")


@dataclass(frozen=True)
class Everything(Mask):
    """Every query may see every key."""

    formula = "true"
    paper = "Vaswani et al. 2017, §3.2.3 (encoder)"

    def __call__(self, site: Site) -> Tensor:
        return site.key >= 0

    def __repr__(self) -> str:
        return "everything"


@dataclass(frozen=True)
class Causal(Mask):
    """A query may see its own position and those before it."""

    formula = "key ≤ query"
    paper = "Vaswani et al. 2017, §3.2.3 (decoder)"

    def __call__(self, site: Site) -> Tensor:
        return site.key <= site.query

    def __repr__(self) -> str:
        return "causal"


@dataclass(frozen=True)
class Window(Mask):
    """Keys at distance less than `width`, itself included."""

    width: int

    formula = "|query − key| < width"
    paper = "Beltagy et al. 2020, §3.1"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise RegardError(f"a window must be at least 1 wide (1 sees itself alone); got {self.width}")

    def __call__(self, site: Site) -> Tensor:
        return (site.query - site.key).abs() < self.width

    def __repr__(self) -> str:
        return f"window({self.width})"


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """The first `length` keys, one number for all sequences or one for each; `causal | prefix(n)` is a prefix LM."""

    length: int | Int[Tensor, " batch"]

    formula = "key < length"
    paper = "Raffel et al. 2020, §3.2.1"

    def __post_init__(self) -> None:
        if (torch.as_tensor(self.length) < 0).any():
            raise RegardError(f"a prefix cannot be shorter than 0; got {self.length}")

    def __call__(self, site: Site) -> Tensor:
        if not isinstance(self.length, Tensor):
            return site.key < self.length
        if site.batch.ndim and len(site.batch) != len(self.length):
            raise RegardError(
                f"prefix has {len(self.length)} lengths for a batch of {len(site.batch)}; give one for each"
            )
        return site.key < self.length[site.batch]

    def __repr__(self) -> str:
        return f"prefix({self.length})"


@dataclass(frozen=True, eq=False)
class Inside(Mask):
    """The real keys of rows that are filled up to `lengths`: how a backend that pads hides what it added."""

    lengths: Int[Tensor, " batch"]

    def __eq__(self, other: object) -> bool:  # a batch keeps one tensor of lengths, and each layer asks with it
        return isinstance(other, Inside) and self.lengths is other.lengths

    def __hash__(self) -> int:
        return id(self.lengths)

    def __call__(self, site: Site) -> Tensor:
        return site.key < self.lengths[site.batch]


@dataclass(frozen=True)
class Both(Mask):
    """What both masks allow."""

    one: Mask
    other: Mask

    def __call__(self, site: Site) -> Tensor:
        return self.one(site) & self.other(site)

    def __repr__(self) -> str:
        return f"({self.one} & {self.other})"


@dataclass(frozen=True)
class Either(Mask):
    """What either mask allows."""

    one: Mask
    other: Mask

    def __call__(self, site: Site) -> Tensor:
        return self.one(site) | self.other(site)

    def __repr__(self) -> str:
        return f"({self.one} | {self.other})"


everything = Everything()
causal = Causal()
window = Window
prefix = Prefix

MASKS: dict[str, type[Mask]] = {"everything": Everything, "causal": Causal, "window": Window, "prefix": Prefix}
