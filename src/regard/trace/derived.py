"""Explanations of numbers that analyses compute from a trace and the model's parameters.

>>> print(embedding_cosine(trace, "source", 4, 7))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from regard.errors import RegardError
from regard.trace.operations.operation import (
    Computation,
    Operand,
    Stage,
    Term,
    constant,
    product_sum,
)
from regard.trace.residual_analysis import (
    Row,
    embedding_table_name,
    lens_state,
    logit_lens,
    pca_projection,
    rank,
)
from regard.trace.trace import Explanation, Trace
from regard.vectors import similarities
from regard.vectors.word_vectors import principal_axes

AXES = ("x", "y")


def embedding_cosine(trace: Trace, side: str, first: int, second: int) -> Explanation:
    """The cosine of the embeddings of two tokens."""
    name = embedding_table_name(trace, side)
    table = trace.numbers[name]
    _check_ids(len(table), (first, second))
    rows = [_row(name, id, table[id].tolist()) for id in (first, second)]
    terms, total = product_sum(zip(*rows, strict=True))
    norms = [math.sqrt(math.fsum(one.value**2 for one in row)) for row in rows]
    stages = [Stage("Σ", total), Stage("‖a‖", norms[0]), Stage("‖b‖", norms[1])]
    result = total / math.prod(norms) if math.prod(norms) else 0.0
    value = float(similarities(table[first : first + 1], table[second : second + 1])[0, 0])
    return Explanation(
        "cosine of embeddings",
        (first, second),
        f"{side}: {_labels(trace, side, (first, second))}",
        "cosine",
        "Σᵢ a[i] · b[i] / (‖a‖ · ‖b‖)",
        None,
        Computation(result, ("product",), terms, stages),
        value,
        {name: "parameter"},
    )


def pca_coordinate(trace: Trace, side: str, id: int, axis: int) -> Explanation:
    """The coordinate of a token on a principal component of the embedding table."""
    plane, name = pca_projection(trace, side), embedding_table_name(trace, side)
    if id not in plane.ids or axis not in (0, 1):
        raise RegardError(f"token {id} has no coordinate {axis} on this plane; use a shown token")
    table = trace.numbers[name][plane.ids]
    centre, directions, _ = principal_axes(table)
    vector = table[plane.ids.index(id)].double()
    terms, total = [], 0.0
    for i, (own, mean, part) in enumerate(
        zip(vector.tolist(), centre.tolist(), directions[axis].tolist(), strict=True)
    ):
        total += (own - mean) * part
        operands = Operand(name, (id, i), own), constant("mean", mean), constant("axis", part)
        terms.append(Term(operands, ((own - mean) * part,), total))
    return Explanation(
        f"coordinate {AXES[axis]}",
        (id, axis),
        f"{side}: {_labels(trace, side, (id,))}, component {axis + 1}",
        "principal component",
        "Σᵢ (E[token, i] − mean[i]) · axis[i]",
        "Pearson 1901",
        Computation(total, ("product",), terms),
        float(plane.places[plane.ids.index(id), axis]),
        {name: "parameter"},
    )


def lens_probability(trace: Trace, tensor: str, row: int, id: int) -> Explanation:
    """The probability of a token read from a state of the residual stream (logit lens)."""
    lens = logit_lens(trace, row)
    if tensor not in lens:
        raise RegardError(f"the logit lens does not read {tensor!r:.80}; use one of its rows")
    _check_ids(len(lens[tensor]), (id,))
    operation = trace.origin("out.logits")
    table, *bias = (trace.numbers[name].double() for name in operation.weights)
    state = lens_state(trace, tensor, row)[0].double()
    logits = table @ state + (bias[0] if bias else 0.0)
    read = [constant("state", value) for value in state.tolist()]
    terms, total = product_sum(
        zip(read, _row(operation.weights[0], id, table[id].tolist()), strict=True)
    )
    stages = [Stage("Σ", total)]
    if bias:
        own = Operand(operation.weights[1], (id,), float(bias[0][id]))
        total += own.value
        stages.append(Stage("+ bias", total, own))
    normaliser = float(torch.logsumexp(logits, 0))
    stages.append(Stage("log Σ exp(logits)", normaliser))
    return Explanation(
        f"logit lens of {tensor}",
        (row, id),
        f"step {row}, {_labels(trace, 'target', (id,))}",
        "logit lens",
        "exp(Σᵢ state[i] · E[token, i] − log Σ exp(logits))",
        "nostalgebraist 2020",
        Computation(math.exp(total - normaliser), ("product",), terms, stages),
        float(lens[tensor][id]),
        dict.fromkeys(operation.weights, "parameter"),
    )


NAMED = 200  # tokens that the explanation of a rank lists; the others are one line


def lens_rank(trace: Trace, tensor: str, row: int, id: int) -> Explanation:
    """The rank of a token in a row of the logit lens: 1 + the number of tokens before it."""
    lens = logit_lens(trace, row)
    if tensor not in lens:
        raise RegardError(f"the logit lens does not read {tensor!r:.80}; use one of its rows")
    _check_ids(len(lens[tensor]), (id,))
    return rank_among(trace, tensor, row, id, lens[tensor])


def rank_among(
    trace: Trace, tensor: str, row: int, id: int, probabilities: Row, listed: int = NAMED
) -> Explanation:
    """The rank of a token among these probabilities of the logit lens.

    Of tokens with the same probability, the one with the lower id comes first. The last `listed`
    tokens before it have a line each.
    """
    own, ids = probabilities[id], torch.arange(len(probabilities))
    before = ids[(probabilities > own) | ((probabilities == own) & (ids < id))]
    before = before[probabilities[before].argsort(descending=True, stable=True)]
    named = before[max(0, len(before) - listed) :].tolist()
    first, terms = len(before) - len(named), []
    if first:
        others = constant(f"the {first:,} most probable tokens", float(first))
        terms.append(Term((others,), (float(first),), float(first)))
    for count, other in enumerate(named, first + 1):
        p = constant(f"p of {_labels(trace, 'target', (other,))}", float(probabilities[other]))
        terms.append(Term((p,), (1.0,), float(count)))
    stages = [Stage("p of this token", float(own)), Stage("tokens before it", len(before))]
    return Explanation(
        f"rank in {tensor}",
        (row, id),
        f"step {row}, {_labels(trace, 'target', (id,))}",
        "rank",
        "1 + number of tokens with a higher probability (equal: a lower id)",
        None,
        Computation(1.0 + len(before), ("counts",), terms, stages),
        float(rank(probabilities, id)),
        {},
    )


def _row(name: str, id: int, numbers: Sequence[float]) -> list[Operand]:
    return [Operand(name, (id, i), value) for i, value in enumerate(numbers)]


def _labels(trace: Trace, side: str, ids: Sequence[int]) -> str:
    bundle = trace.pipeline.bundle
    tokenizer = bundle.source if side == "source" else bundle.target
    return " and ".join(f"“{tokenizer.label(id)}”" for id in ids)


def _check_ids(size: int, ids: Sequence[int]) -> None:
    for id in ids:
        if not 0 <= id < size:
            raise RegardError(f"the vocabulary has tokens 0 to {size - 1:,}; got {id}")
