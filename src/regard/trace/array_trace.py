"""A trace from given arrays, for models that Regard cannot run, and for frames of reduced films."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from regard.answer import Answer
from regard.errors import RegardError
from regard.pipeline import Pipeline
from regard.text import Piece
from regard.trace.operations.operation import Computation, Index, Operation, TensorStore, constant
from regard.trace.operations.operation import copied as copied_number
from regard.trace.program import AttentionBlock, Program, Step
from regard.trace.trace import Trace

S, T, H = "source", "target", "head"
AXES = {  # of tensors by name; the first match applies
    r"enc\.\d+\.self\.(dots|scores|biased|masked|weights)": (H, S, S),
    r"dec\.\d+\.self\.(dots|scores|biased|masked|weights)": (H, T, T),
    r"(dec\.\d+\.cross\.(dots|scores|biased|masked)|attn\.energy)": (H, T, S),
    r"(dec\.\d+\.cross|attn)\.weights": (H, T, S),
    r"enc\.\d+\.self\.(q|k|v|context)": (H, S, "dim"),
    r"(dec\.\d+\.self\.(q|k|v|context)|dec\.\d+\.cross\.(q|context))": (H, T, "dim"),
    r"dec\.\d+\.cross\.(k|v)": (H, S, "dim"),
    r"enc\.\d+\.ffn\.(hidden|act)": (S, "hidden"),
    r"dec\.\d+\.ffn\.(hidden|act)": (T, "hidden"),
    r"(src\.\w+|enc\.(\d+\.)?\w+(\.(out|joined))?)": (S, "width"),
    r"(tgt\.\w+|dec\.(\d+\.)?\w+(\.(out|joined))?)": (T, "width"),
    r"out\.(logits|logprobs)": (T, "vocabulary"),
    r"out\.top\.(ids|logprobs)": (T, "candidate"),
    r"out\.(chosen|entropy)": (T,),
    r"out\.(total|score)": (),
}
BLOCK = re.compile(r"(enc\.\d+\.self|dec\.\d+\.self|dec\.\d+\.cross|attn)\.weights")
KINDS = {"enc": "encoder", "dec": "decoder", "attn": "cross"}
SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2}  # ids of the default template
STAGES = ("q", "k", "v", "dots", "scores", "biased", "masked", "energy", "weights", "context")


@dataclass(frozen=True)
class GivenTensor(Operation):
    """Numbers that were given, not computed by Regard."""

    name: str = ""
    kind = "given"
    formula = "a given number"

    def compute(self, store: TensorStore, rows: slice) -> Tensor:
        """The given rows."""
        return store[self.name][rows]

    def explain(self, store: TensorStore, index: Index) -> Computation:
        """The number itself."""
        return copied_number(constant("given", store.one(self.name, *index).value))


class NoModel(Pipeline):
    """The pipeline of a trace that has no model: using it is an error with the reason."""

    def __init__(self) -> None:
        pass

    def __getattr__(self, name: str) -> NoReturn:
        raise RegardError("this trace has given numbers and no model; record one with a model")


def trace_from_arrays(
    source: Sequence[str | Piece],
    target: Sequence[str | Piece],
    arrays: Mapping[str, Any],
    following: Sequence[str | Piece] | None = None,
    text: str | None = None,
) -> Trace:
    """See `Trace.from_arrays`."""
    pieces = {S: _pieces(source), T: _pieces(target)}
    after = [*target[1:], "</s>"] if following is None else list(following)
    if len(after) != len(target):
        raise RegardError(
            f"following must have one token for each of the {len(target)} of the target; got "
            f"{len(after)}"
        )
    sizes = {side: len(tokens) for side, tokens in pieces.items()}
    tensors = {name: _tensor(name, array, sizes) for name, array in arrays.items()}
    steps = tuple(Step(name, axes_of(name), GivenTensor((), (), name)) for name in tensors)
    attentions = tuple(
        _block(match[1], tensors) for name in tensors if (match := BLOCK.fullmatch(name))
    )
    if not attentions:
        raise RegardError(
            "no attention weights among the arrays; name one dec.0.cross.weights, say, of shape "
            "(head, target, source)"
        )
    following_pieces = _pieces(after)
    tokens = [piece.text for piece in following_pieces[:-1]]
    written = "".join(tokens) if text is None else text
    logps = tensors["out.chosen"].tolist() if "out.chosen" in tensors else []
    ids = [piece.id for piece in following_pieces[:-1]]
    score = float(tensors["out.score"]) if "out.score" in tensors else float("nan")
    read = "".join(piece.text for piece in pieces[S])
    answer = Answer(read, written, ids, tokens, logps, score)
    return Trace(
        NoModel(),
        Program(steps, 0, attentions),
        TensorStore({}, tensors),
        pieces[S],
        pieces[T],
        following_pieces,
        answer,
        (),
        None,
    )


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of a tensor by its name; raises for a name that Regard does not know."""
    for pattern, axes in AXES.items():
        if re.fullmatch(pattern, name):
            return axes
    raise RegardError(
        f"unknown tensor {name!r}; use Regard's names, such as dec.0.cross.weights or src.embed"
    )


def _tensor(name: str, array: Any, sizes: Mapping[str, int]) -> Tensor:
    """An array as float32, with the shape that its name asks for."""
    axes = axes_of(name)
    given = array.detach().cpu() if isinstance(array, Tensor) else torch.tensor(np.asarray(array))
    tensor = given.float()
    wanted = [sizes.get(axis) for axis in axes]
    fits = tensor.ndim == len(axes) and all(
        size in (None, own) for size, own in zip(wanted, tensor.shape, strict=True)
    )
    if not fits:
        shape = ", ".join(
            f"{axis} {size}" if size else axis for axis, size in zip(axes, wanted, strict=True)
        )
        raise RegardError(f"{name} must have shape ({shape}); got {tuple(tensor.shape)}")
    return tensor.contiguous()


def _block(name: str, tensors: Mapping[str, Tensor]) -> AttentionBlock:
    stack, *rest = name.split(".")
    kind = "cross" if name.endswith("cross") else KINDS[stack]
    stages = tuple(stage for stage in STAGES if f"{name}.{stage}" in tensors)
    query, key = axes_of(f"{name}.weights")[1:]
    heads = len(tensors[f"{name}.weights"])
    return AttentionBlock(name, kind, int(rest[0]) if rest else 0, heads, query, key, stages, "")


def _pieces(tokens: Sequence[str | Piece]) -> list[Piece]:
    """Tokens with ids (equal tokens have equal ones) and offsets in their joined text."""
    found: list[Piece] = []
    ids = dict(SPECIAL)
    start = 0
    for token in tokens:
        if isinstance(token, Piece):
            found.append(token)
            continue
        if not isinstance(token, str):
            raise RegardError(f"a token must be a str; got {token!r:.80}")
        id = ids.setdefault(token, len(ids))
        found.append(Piece(token, id, start, start + len(token)))
        start += len(token)
    return found
