"""Parts that model families share: score, normaliser and position encoding from settings; dropout,
embedding and output.

A setting is a name ("entmax") or a table with options ({kind = "entmax", alpha = 1.2}). Names are
those of the registries, so parts that users register work like the built-in ones.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Mask, causal, everything, window
from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.scores import SCORES, Score
from regard.axes import Offset
from regard.config import PartSetting
from regard.errors import RegardError, UnknownName, suggestion
from regard.kernels import can_fuse
from regard.positions import POSITIONS, AdditivePosition, Position
from regard.ragged import Ragged

MAX_OPTION = 1e12  # of a number


def make_score(setting: PartSetting, heads: int, dim: int) -> Score:
    """The score that `model.score` names."""
    return _make("score", SCORES, setting, {"heads": heads, "dim": dim})


def make_normaliser(setting: PartSetting) -> Normaliser:
    """The normaliser that `model.normaliser` names."""
    return _make("normaliser", NORMALISERS, setting, {})


def make_position(setting: PartSetting, **sizes: Any) -> Position:
    """The position encoding that `model.position` names, built with the sizes that it takes."""
    return _make("position", POSITIONS, setting, sizes)


def self_attention_mask(width: int | None, *, is_causal: bool) -> Mask:
    """The mask of self-attention: causal in a decoder, within a window where one is set."""
    mask = causal if is_causal else everything
    return mask if width is None else mask & window(width)


def _make(
    what: str, registry: Mapping[str, type], setting: PartSetting, sizes: dict[str, Any]
) -> Any:
    options: dict[str, Any] = {} if isinstance(setting, str) else dict(setting)
    name = setting if isinstance(setting, str) else options.pop("kind", None)
    if not isinstance(name, str) or name not in registry:
        hint = suggestion(str(name)[:80], registry)
        raise UnknownName(
            f"model.{what}: unknown {what} {name!r:.80}; {hint}{'' if hint.endswith('?') else '.'} "
            "A part of your own must be registered before use: pass its file with --import FILE, "
            "or import it in Python"
        )
    part = registry[name]
    accepted = inspect.signature(part).parameters
    for option in options:
        if option not in accepted or option in sizes:
            known = [known for known in accepted if known not in sizes]
            raise UnknownName(
                f"model.{what}: {name!r} has no option {option!r}; {suggestion(option, known)}"
            )
        _check_option(f"model.{what}: {option} of {name!r}", options[option], accepted[option])
    try:
        return part(**{size: value for size, value in sizes.items() if size in accepted}, **options)
    except TypeError as error:
        raise RegardError(f"model.{what} = {setting!r:.80}: {error}") from None


# Types of options in constructors' annotations, and what they accept.
_OPTION_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
}


def _check_option(name: str, value: Any, parameter: inspect.Parameter) -> None:
    """Raise if an option, which may come from a file, has another type than the part takes."""
    annotation = parameter.annotation
    kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    types, words = _OPTION_TYPES.get(kind, ((object,), ""))
    if not isinstance(value, types) or (isinstance(value, bool) and kind in ("int", "float")):
        raise RegardError(f"{name} must be {words}; got {value!r:.80}")
    if isinstance(value, int | float) and not abs(value) <= MAX_OPTION:
        raise RegardError(f"{name} must be at most {MAX_OPTION:g}; got {value!r:.80}")


class Dropout(nn.Module):
    """Zeroes a share of the numbers in training and scales up the rest (Srivastava et al. 2014).

    On a CPU, torch draws 32 random bits for each number, which takes longer than a matrix product.
    One byte is enough: the share is rounded to 256ths, and the scale is that of the rounded share,
    so the mean stays exact.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.bytes = min(255, max(1, round(share * 256))) if share else 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        return F.dropout(x, self.share) if x.is_cuda else x * self._scales(x)

    def _scales(self, x: Tensor) -> Tensor:
        """The factor of each number: 0 or the scale. As floats: torch is slow with bools."""
        drawn = (
            torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
            .random_(-(2**63), None)
            .view(torch.uint8)
        )
        kept = torch.ge(drawn, self.bytes, out=torch.empty_like(drawn))[: x.numel()].view(x.shape)
        return kept.to(x.dtype).mul_(256 / (256 - self.bytes))

    def extra_repr(self) -> str:
        return str(self.share)


class Embedding(nn.Module):
    """E[id] · √width + P[position] (Vaswani et al. 2017, §3.4). `scale` replaces √width, and `norm`
    is applied to the sum, as in BART. The table may be shared with the output layer.

    The table starts with variance 1/width: vectors then have variance 1, and so have the logits h ·
    Eᵀ.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        position: Position | None = None,
        scale: float | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, width) / math.sqrt(width))
        self.position = position if isinstance(position, AdditivePosition) else None
        self.scale = math.sqrt(width) if scale is None else scale
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, ids: Ragged, offset: Offset = 0) -> Ragged:
        """Vectors for ids whose sequences start at `offset`."""
        vectors = _lookup(ids.values, self.table, self.scale)
        if self.position is not None:
            vectors = vectors + _position_vectors(self.position, ids, offset).to(vectors.dtype)
        if self.norm is not None:
            vectors = self.norm(vectors)
        return ids.like(self.dropout(vectors))


def _lookup(
    ids: Int[Tensor, " token"], table: nn.Parameter, scale: float
) -> Float[Tensor, "token width"]:
    """The rows of a table, scaled."""
    if torch.is_grad_enabled() and can_fuse(table):
        from regard.kernels.embedding_lookup import embedding_lookup

        return embedding_lookup(ids, table, scale)
    return nn.functional.embedding(ids, table) * scale


def _position_vectors(
    position: AdditivePosition, ids: Ragged, offset: Offset
) -> Float[Tensor, "token width"]:
    """The position vector of each token.

    If all sequences start at the same position, each position is computed once.
    """
    if isinstance(offset, Tensor):
        added: Tensor = position(ids.positions + offset[ids.layout.rows])
        return added
    position.check_position(offset + ids.longest - 1)
    places = torch.arange(offset, offset + ids.longest, device=ids.values.device)
    return nn.functional.embedding(ids.positions, position(places))


class Output(nn.Module):
    """h · Eᵀ + b: logits over the vocabulary, from a table of its own or an embedding's, with a
    bias on request."""

    bias: nn.Parameter | None

    def __init__(
        self, vocabulary: int, width: int, *, tied: nn.Parameter | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        self.table = (
            nn.Parameter(torch.randn(vocabulary, width) / math.sqrt(width))
            if tied is None
            else tied
        )
        self.register_parameter("bias", nn.Parameter(torch.zeros(vocabulary)) if bias else None)

    def forward(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        return nn.functional.linear(vectors, self.table, self.bias)


def ids_of(tokens: Int[Tensor, " row"]) -> Ragged:
    """A batch with one token per row."""
    return Ragged.uniform(tokens, len(tokens))
