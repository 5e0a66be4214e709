"""The vectors that a saved page needs to explain cosines, coordinates and logit-lens numbers.

A saved page has no model. It gets the embeddings of the tokens it shows, the axes of the PCA, and
for the logit lens the states and the output vectors of the tokens it names.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.explore.trace_store import StoredTrace
from regard.trace.derived import rank_among
from regard.trace.residual_analysis import (
    embedding_table_name,
    lens_state,
    logit_lens,
    neighbours,
    pca_projection,
)
from regard.vectors.word_vectors import principal_axes

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer
    from regard.trace import Trace

NEAREST = 10  # neighbours of each token on the page
PREDICTED = 3  # tokens that the page names in each row of the lens
LISTED = 10  # tokens that the explanation of a rank lists in a saved page


def offline_tables(stored: StoredTrace) -> dict[str, Any]:
    """The tables of a saved page."""
    trace, bundle = stored.trace, stored.model.pipeline.bundle
    return {
        "embeddings": {
            "source": _embeddings(trace, "source", bundle.source),
            "target": _embeddings(trace, "target", bundle.target),
        },
        "lens": _lens(trace, bundle.target),
    }


def lens_ranks(trace: Trace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The explanations of the ranks that the page shows, by their addresses."""
    for row, piece in enumerate(trace.following):
        for tensor, probabilities in logit_lens(trace, row).items():
            address = f"explain-lens-rank?tensor={tensor}&row={row}&token={piece.id}"
            found = rank_among(trace, tensor, row, piece.id, probabilities, LISTED)
            yield address, found.as_dict()


def _embeddings(trace: Trace, side: str, tokenizer: Tokenizer) -> dict[str, Any]:
    """The embeddings of the points of the plane and of all neighbours."""
    name, plane = embedding_table_name(trace, side), pca_projection(trace, side)
    table = trace.numbers[name]
    ids = set(plane.ids)
    for position in range(len(trace.pieces(side))):
        ids |= {id for id, _ in neighbours(trace, side, position, NEAREST)}
    centre, axes, _ = principal_axes(table[plane.ids])
    rows = _rows(name, table, sorted(ids), tokenizer)
    return {**rows, "centre": centre.tolist(), "axes": axes[:2].tolist()}


def _lens(trace: Trace, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The states that the logit lens reads, and the output vectors of the tokens it names."""
    every = [logit_lens(trace, row) for row in range(len(trace.target))]
    if not every[0]:
        return None
    ids = {piece.id for piece in trace.following}
    for lens in every:
        for row in lens.values():
            ids |= set(row.topk(min(PREDICTED, len(row))).indices.tolist())
    named = sorted(ids)
    weight, *bias = trace.origin("out.logits").weights
    table = trace.numbers[weight].double()
    shift = trace.numbers[bias[0]].double() if bias else torch.zeros(len(table)).double()
    states = {
        name: torch.cat([lens_state(trace, name, row) for row in range(len(every))])
        for name in every[0]
    }
    return {
        "output": _rows(weight, trace.numbers[weight], named, tokenizer),
        "bias": {"name": bias[0], "values": shift[named].tolist()} if bias else None,
        "states": {name: _base64(state) for name, state in states.items()},
        "normalisers": {
            name: torch.logsumexp(state.double() @ table.T + shift, 1).tolist()
            for name, state in states.items()
        },
    }


def _rows(name: str, table: Tensor, ids: Sequence[int], tokenizer: Tokenizer) -> dict[str, Any]:
    labels = [tokenizer.label(id) for id in ids]
    return {"table": name, "ids": ids, "labels": labels, "vectors": _base64(table[list(ids)])}


def _base64(numbers: Tensor) -> str:
    return base64.b64encode(numbers.float().contiguous().numpy().tobytes()).decode()
