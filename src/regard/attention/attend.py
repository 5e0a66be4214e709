"""attend and Attention: any score, bias, mask and normaliser, on any backend."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import backends, masks
from regard.attention.cache import Sequences, pad
from regard.attention.input_checks import check_inputs, sizes_of
from regard.attention.masks import Mask, PaddingMask, everything
from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.reference import Bias, Intermediates, Parts, Rotation, intermediates
from regard.attention.scores import SCORES, Score
from regard.axes import Offset
from regard.errors import NotANumber, RegardError, ShapeError, debugging
from regard.ragged import Ragged

S = TypeVar("S", Ragged, Tensor)


class Attention(nn.Module, Parts):
    """An attention as a module: its parts, and the backend that runs them.

    >>> attention = Attention(ScaledDot(heads=4, dim=32), bias=Alibi(heads=4))
    >>> contexts = attention(queries, keys, values, mask=causal)
    """

    def __init__(
        self,
        score: Score,
        *,
        bias: Bias | None = None,
        normaliser: str | Normaliser = "softmax",
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if backend != "auto":
            backends.BACKENDS.choose(backend)
        if not isinstance(score, Score):
            raise RegardError(
                f"score must be a Score instance such as ScaledDot(heads, dim); got {score!r:.40}"
            )
        if bias is not None and not isinstance(bias, Bias):
            raise RegardError(
                f"bias must be a BiasPosition instance such as Alibi(heads); got {bias!r:.40}"
            )
        if bias is not None and bias.heads not in (None, score.heads):
            name = type(bias).__name__
            raise ShapeError(
                f"the bias {name} is for {bias.heads} heads, the score for {score.heads}"
            )
        if not isinstance(normaliser, Normaliser):
            normaliser = NORMALISERS.choose(normaliser)()
        self.score = score
        self.bias = bias
        self.normaliser = normaliser
        self.dropout = nn.Dropout(dropout)
        self.backend = backend

    def forward(
        self,
        queries: S,
        keys: Sequences,
        values: Sequences,
        *,
        mask: Mask = everything,
        offset: Offset = 0,
        rotation: Rotation | None = None,
    ) -> S:
        """One context per query. `offset` is the first query's position in cached decoding.

        With a `rotation` (rotary positions) the backend rotates queries and keys.
        """
        check_inputs(queries, keys, values)
        self._check_queries(queries)
        masks.check_mask(mask)
        if rotation is not None and (debugging() or isinstance(offset, Tensor)):
            queries = backends.rotate(rotation, queries, offset)
            keys, rotation = backends.rotate(rotation, keys), None
        if debugging():
            self._raise_on_nan(queries, keys, values, mask, offset)
        context: S = backends.run(self.backend, self, queries, keys, values, mask, offset, rotation)
        return context

    @torch.no_grad()
    def intermediates(
        self,
        queries: Sequences,
        keys: Sequences,
        values: Sequences,
        *,
        mask: Mask = everything,
        offset: Offset = 0,
        rotation: Rotation | None = None,
    ) -> Intermediates:
        """All intermediate results, dense, without gradients, before dropout: for inspection."""
        check_inputs(queries, keys, values)
        self._check_queries(queries)
        masks.check_mask(mask)
        if rotation is not None:
            queries = backends.rotate(rotation, queries, offset)
            keys = backends.rotate(rotation, keys)
        padded = pad(keys)
        visible = mask if padded.lengths is None else mask & PaddingMask(padded.lengths)
        dense = pad(queries).tensor, padded.tensor, pad(values).tensor
        return intermediates(self, *dense, visible, offset)

    def _check_queries(self, queries: Sequences) -> None:
        _, sizes = sizes_of(queries)
        heads, dim = sizes["heads"], sizes["dim"]
        if (self.score.heads, self.score.dim) != (heads, dim):
            raise ShapeError(
                f"{type(self.score).__name__} was built for {self.score.heads} heads of "
                f"{self.score.dim}; got queries of {heads} heads of {dim}"
            )

    def _raise_on_nan(
        self, queries: Sequences, keys: Sequences, values: Sequences, mask: Mask, offset: Offset
    ) -> None:
        results = self.intermediates(queries, keys, values, mask=mask, offset=offset)
        for stage in ("scores", "biased", "weights"):
            wrong = (getattr(results, stage).isnan() & results.allowed).nonzero()
            if len(wrong):
                batch, head, query, key = wrong[0].tolist()
                raise NotANumber(
                    f"{stage} are NaN in {len(wrong)} places, first at batch {batch}, head {head}, "
                    f"query {query}, key {key}; check for NaN or overflow in what computed these "
                    "queries and keys"
                )


def attend(
    queries: S,
    keys: Sequences,
    values: Sequences,
    *,
    score: str | Score = "scaled-dot",
    bias: Bias | None = None,
    mask: Mask = everything,
    normaliser: str | Normaliser = "softmax",
    offset: Offset = 0,
    dropout: float = 0.0,
    backend: str = "auto",
) -> S:
    """Attention without a module: one context per query.

    Sequences are dense tensors (batch, head, time, dim) or `Ragged` batches of (token, head, dim).
    Keys and values may have fewer heads than queries (grouped-query attention).

    >>> attend(queries, keys, values, mask=causal & window(64))
    """
    check_inputs(queries, keys, values)
    if isinstance(score, str):
        _, sizes = sizes_of(queries)
        kind = SCORES.choose(score)
        score = kind(sizes["heads"], sizes["dim"])
        if next(score.parameters(), None) is not None:
            name = kind.__name__
            raise RegardError(
                f"score {name} has parameters; create it once, {name}(heads, dim), and pass it"
            )
    parts = Attention(score, bias=bias, normaliser=normaliser, dropout=dropout, backend=backend)
    return parts(queries, keys, values, mask=mask, offset=offset)


def attend_columns(
    queries: Float[Tensor, "dim query"],
    keys: Float[Tensor, "dim key"],
    values: Float[Tensor, "out key"],
) -> Float[Tensor, "out query"]:
    """V · softmax(Kᵀ Q / √d): attention with vectors as columns (Phuong & Hutter 2022, alg. 4).

    Everywhere else in Regard vectors are rows; this function transposes its input and output.
    """
    rows = (matrix.T[None, None] for matrix in (queries, keys, values))
    return attend(*rows)[0, 0].T
