"""attend: queries look at keys and bring back values, by any score, bias, mask and normaliser, on any backend."""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import backends, masks
from regard.attention.masks import Inside, Mask, everything
from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.padded import Padded, Sequences, pad
from regard.attention.reference import Bias, Steps, Turn, steps
from regard.attention.scores import SCORES, Score
from regard.axes import Offset
from regard.errors import NotANumber, RegardError, ShapeError, choose, debugging
from regard.ragged import Ragged

S = TypeVar("S", Ragged, Tensor)


class Attention(nn.Module):
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
            choose(backends.BACKENDS, backend, "backend")
        if not isinstance(score, Score):
            raise RegardError(f"a score is made first, as ScaledDot(heads, dim) is; got {score!r:.40}")
        if bias is not None and not hasattr(bias, "heads"):
            raise RegardError(f"a bias is made first, as Alibi(heads) is; got {bias!r:.40}")
        if bias is not None and bias.heads not in (None, score.heads):
            raise ShapeError(f"the bias {type(bias).__name__} is for {bias.heads} heads, the score for {score.heads}")
        self.score = score
        self.bias = bias
        self.normaliser = normaliser if isinstance(normaliser, Normaliser) else NORMALISERS.choose(normaliser)()
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
        turn: Turn | None = None,
    ) -> S:
        """One context for each query. `offset` is where the first query stands when earlier ones are in a cache.

        With a `turn` (rotary) queries and keys come unturned, and the backend turns them.
        """
        check(queries, keys, values)
        self._fits(queries)
        masks.check(mask)
        if turn is not None and (debugging() or isinstance(offset, Tensor)):
            queries, keys, turn = backends.turned(turn, queries, offset), backends.turned(turn, keys), None
        if debugging():
            self._look_for_nan(queries, keys, values, mask, offset)
        context: S = backends.run(self.backend, self, queries, keys, values, mask, offset, turn)
        return context

    @torch.no_grad()
    def steps(
        self,
        queries: Sequences,
        keys: Sequences,
        values: Sequences,
        *,
        mask: Mask = everything,
        offset: Offset = 0,
        turn: Turn | None = None,
    ) -> Steps:
        """Every intermediate of the definition, dense, without gradients and before dropout: for those who look."""
        check(queries, keys, values)
        self._fits(queries)
        masks.check(mask)
        if turn is not None:
            queries, keys = backends.turned(turn, queries, offset), backends.turned(turn, keys)
        known = pad(keys)
        visible = mask if known.lengths is None else mask & Inside(known.lengths)
        return steps(self, pad(queries).tensor, known.tensor, pad(values).tensor, visible, offset)

    def _fits(self, queries: Sequences) -> None:
        _, sizes = _sizes(queries)
        heads, dim = sizes["heads"], sizes["dim"]
        if (self.score.heads, self.score.dim) != (heads, dim):
            made = f"{self.score.heads} heads of {self.score.dim}"
            raise ShapeError(f"{type(self.score).__name__} was made for {made}; got queries of {heads} heads of {dim}")

    def _look_for_nan(self, queries: Sequences, keys: Sequences, values: Sequences, mask: Mask, offset: Offset) -> None:
        seen = self.steps(queries, keys, values, mask=mask, offset=offset)
        for stage in ("scores", "biased", "weights"):
            wrong = (getattr(seen, stage).isnan() & seen.allowed).nonzero()
            if len(wrong):
                batch, head, query, key = wrong[0].tolist()
                raise NotANumber(
                    f"{stage} are NaN in {len(wrong)} places, first at batch {batch}, head {head}, query {query}, "
                    f"key {key}; look for NaN or overflow in what made these queries and keys"
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
    """Attention without a module: one context for each query.

    Sequences are dense tensors (batch, head, time, dim) or `Ragged` batches of (token, head, dim). Keys and values
    may have fewer heads than queries: each group of them then serves several heads.

    >>> attend(queries, keys, values, mask=causal & window(64))
    """
    check(queries, keys, values)
    if isinstance(score, str):
        _, sizes = _sizes(queries)
        kind = SCORES.choose(score)
        score = kind(sizes["heads"], sizes["dim"])
        if next(score.parameters(), None) is not None:
            raise RegardError(
                f"score {kind.__name__} learns weights; make it once, {kind.__name__}(heads, dim), and pass it in"
            )
    parts = Attention(score, bias=bias, normaliser=normaliser, dropout=dropout, backend=backend)
    return parts(queries, keys, values, mask=mask, offset=offset)


def in_columns(
    queries: Float[Tensor, "dim query"], keys: Float[Tensor, "dim key"], values: Float[Tensor, "out key"]
) -> Float[Tensor, "out query"]:
    """V · softmax(Kᵀ Q / √d): the same attention for those who write vectors as columns and let matrices act from
    the left (Phuong & Hutter 2022, algorithm 4). Inside Regard vectors are rows: this transposes on the way in and out.
    """
    rows = (matrix.T[None, None] for matrix in (queries, keys, values))
    return attend(*rows)[0, 0].T


def check(queries: Sequences, keys: Sequences, values: Sequences) -> None:
    """Whether the three fit together; the first thing that does not is named."""
    (q_kind, q), (k_kind, k), (v_kind, v) = (_sizes(x) for x in (queries, keys, values))
    if (q_kind != k_kind and not isinstance(keys, Padded)) or k_kind != v_kind:
        raise ShapeError(f"queries, keys and values must be all dense or all ragged; got {q_kind}, {k_kind}, {v_kind}")
    if q["batch"] != k["batch"] or k["batch"] != v["batch"]:
        raise ShapeError(f"queries come in {q['batch']} sequences, keys in {k['batch']}, values in {v['batch']}")
    if k["time"] != v["time"]:
        raise ShapeError(f"each key needs one value; got {k['time']} keys and {v['time']} values")
    if isinstance(keys, Ragged) and isinstance(values, Ragged) and not keys.same_lengths(values):
        raise ShapeError("keys and values must be cut into the same sequences; their offsets differ")
    if k["heads"] != v["heads"]:
        raise ShapeError(f"keys come in {k['heads']} groups but values in {v['heads']}; give both the same number")
    if k["heads"] == 0 or q["heads"] % k["heads"]:
        raise ShapeError(
            f"{q['heads']} heads cannot share {k['heads']} groups of keys; heads must be a multiple of groups"
        )
    if q["dim"] != k["dim"]:
        raise ShapeError(
            f"queries have dim {q['dim']} but keys have dim {k['dim']}; project both into one attention space first"
        )


def _sizes(sequences: Sequences) -> tuple[str, dict[str, int]]:
    if isinstance(sequences, Ragged):
        shape, kind, wanted = sequences.values.shape, "ragged", "(token, head, dim)"
    else:
        tensor = sequences.tensor if isinstance(sequences, Padded) else sequences
        if not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise ShapeError(
                f"sequences are tensors or Ragged batches, and this is a {kind}; torch.as_tensor makes one"
            )
        shape, kind, wanted = tensor.shape, "dense", "(batch, head, time, dim)"
    if len(shape) != wanted.count(",") + 1:
        raise ShapeError(f"{kind} sequences must be {wanted}; got a tensor of shape {tuple(shape)}")
    if isinstance(sequences, Ragged):
        return kind, {"batch": len(sequences), "time": shape[0], "heads": shape[1], "dim": shape[2]}
    return kind, {"batch": shape[0], "heads": shape[1], "time": shape[2], "dim": shape[3]}
