"""Analyses of a trace as JSON: embeddings, output, attention, residual stream, search, occlusion.

Each function is one view of the page; the computations are those of `regard.trace`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch import Tensor

from regard.errors import RegardError, suggestion
from regard.explore.messages import not_found
from regard.explore.trace_json import trace_tokens
from regard.explore.trace_store import StoredTrace, check_model, search_for
from regard.search import Beam
from regard.trace import attention_analysis, beam_search_tree, residual_analysis
from regard.trace.attention_analysis import MEAN, alignment_matrix
from regard.trace.edits import ForceToken
from regard.trace.residual_analysis import Row, rank
from regard.web.access import HttpError
from regard.web.json_messages import invalid

if TYPE_CHECKING:
    from regard.pipeline import Pipeline
    from regard.text.tokenizers import Tokenizer
    from regard.trace import BeamTree

LENS_TOP = 3
# log p of each target token, and with each source token hidden
_OCCLUSION: WeakKeyDictionary[StoredTrace, tuple[Tensor, Tensor]] = WeakKeyDictionary()


def neighbours(stored: StoredTrace, side: str, position: int, n: int) -> dict[str, Any]:
    """The n tokens whose embeddings are nearest to that of a token, by cosine."""
    check_model(stored)
    check_position(stored, side, position)
    label = _tokenizer(stored, side).label
    nearest = residual_analysis.neighbours(stored.trace, side, position, n)
    return {
        "token": trace_tokens(stored.trace, side)[position],
        "neighbours": [{"id": id, "text": label(id), "cosine": cosine} for id, cosine in nearest],
    }


def embedding_plane(stored: StoredTrace, side: str) -> dict[str, Any]:
    """PCA of the embedding table; of a large one, of this text's tokens and their neighbours."""
    check_model(stored)
    positions: dict[int, list[int]] = {}
    for position, piece in enumerate(stored.trace.pieces(side)):
        positions.setdefault(piece.id, []).append(position)
    label = _tokenizer(stored, side).label
    plane = residual_analysis.pca_projection(stored.trace, side)
    name = residual_analysis.embedding_table_name(stored.trace, side)
    table = stored.trace.numbers[name][plane.ids].double()
    spreads = (table - table.mean(0)).square().sum(1)  # their sum is the variance, times the count
    points = [
        {
            "id": id,
            "text": label(id),
            "x": x,
            "y": y,
            "spread": spread,
            "positions": positions.get(id, []),
        }
        for id, (x, y), spread in zip(
            plane.ids, plane.places.tolist(), spreads.tolist(), strict=True
        )
    ]
    return {"points": points, "explained_variance": list(plane.explained)}


def output(stored: StoredTrace, row: int, n: int, word: str | None) -> dict[str, Any]:
    """The most probable next tokens of a row, the rank of `word` among them, and the logit lens."""
    trace, target = stored.trace, stored.model.pipeline.bundle.target
    if not 0 <= row < len(trace.target):
        message = f"row {row} is not one of the target's 0 to {len(trace.target) - 1}"
        raise invalid(message, "out-of-range")
    if "out.logits" not in trace:
        return _stored_output(stored, row, n)
    logits, logps = trace["out.logits"][row], trace["out.logprobs"][row]
    ranked = trace.following[row].id if word is None else first_token(target, word)

    def score(id: int) -> dict[str, Any]:
        return {
            "id": id,
            "text": target.label(id),
            "logit": float(logits[id]),
            "logp": float(logps[id]),
        }

    top = logps.topk(min(n, len(logps))).indices.tolist()
    lens = residual_analysis.logit_lens(trace, row).items()
    return {
        "row": row,
        "top": [{**score(id), "p": math.exp(float(logps[id]))} for id in top],
        "token": None if word is None else {**score(ranked), "rank": rank(logps, ranked)},
        "vocabulary_size": len(logps),
        "entropy": float(attention_analysis.bits(logps.double().exp())),
        "logit_lens": [{"tensor": name, **_lens_row(target, ps, ranked)} for name, ps in lens],
    }


def _stored_output(stored: StoredTrace, row: int, n: int) -> dict[str, Any]:
    """The most probable next tokens of a trace without logits, if it has them."""
    trace, label = stored.trace, stored.model.token_label
    if "out.top.ids" not in trace:
        check_model(stored)
    pairs = zip(trace["out.top.ids"][row].int(), trace["out.top.logprobs"][row], strict=True)
    top: list[dict[str, Any]] = [
        {"id": int(id), "text": label(int(id)), "logit": float(logp), "logp": float(logp)}
        for id, logp in pairs
    ]
    return {
        "row": row,
        "top": [{**one, "p": math.exp(one["logp"])} for one in top[:n]],
        "token": None,
        "vocabulary_size": stored.model.vocabulary_sizes["target"],
        "entropy": float(trace["out.entropy"][row]) if "out.entropy" in trace else math.nan,
        "logit_lens": [],
    }


def first_token(tokenizer: Tokenizer, word: str) -> int:
    """The id of the first token of a text."""
    ids = tokenizer.encode(word) or tokenizer.encode(word.strip())
    if not ids:
        raise invalid("the word is empty; enter one", "empty")
    return ids[0]


def alignment(stored: StoredTrace, attention: str, head: int | None = None) -> dict[str, Any]:
    """The weights of a cross-attention, or the mean of all, and the links they give.

    A link i-j (Pharaoh format) joins output token j with the source token i of the highest weight;
    there is none if that is the end token."""
    heads = cross_attentions(stored)
    if attention != MEAN and attention not in heads:
        near = suggestion(attention, [*heads, MEAN])
        raise not_found("unknown-attention", f"unknown attention {attention[:80]!r}; {near}")
    if head is not None and (attention == MEAN or not 0 <= head < heads[attention]):
        raise invalid(f"head {head} does not exist in {attention!r}", "out-of-range")
    matrix = alignment_matrix(stored.trace, attention, head)
    pairs = attention_analysis.links(matrix)
    text = " ".join(f"{i}-{j}" for i, j in pairs)
    return {"matrix": matrix.tolist(), "pairs": pairs, "text": text}


def cross_attentions(stored: StoredTrace) -> dict[str, int]:
    """The number of heads of each cross-attention by name; raises if there is none."""
    heads = {one.name: one.heads for one in stored.trace.attentions if one.kind == "cross"}
    if not heads:
        message = "this model has no cross-attention; use a model with attention"
        raise invalid(message, "no-attention")
    return heads


def residual_stream(stored: StoredTrace, side: str, position: int) -> dict[str, Any]:
    """The contributions to a token's residual stream, and its norm after each of them.

    A recurrent model has no residual stream: the norms are those of the states of one step."""
    check_model(stored)
    check_position(stored, side, position)
    added = residual_analysis.residual_contributions(stored.trace, side, position)
    norms = residual_analysis.residual_norms(stored.trace, side, position)
    return {
        "contributions": [
            {"tensor": one.name, "norm": one.norm, "cosine": one.cosine, "into": one.into}
            for one in added
        ],
        "residuals": [{"tensor": name, "norm": norm} for name, norm in norms.items()],
    }


def occlusion(stored: StoredTrace) -> dict[str, Any]:
    """The effect of hiding each source token, and its rank correlation with attention weights."""
    check_model(stored)
    _check_unedited(stored, "occlusion is measured on the unedited model")
    names = cross_attentions(stored)
    if stored not in _OCCLUSION:
        with stored.model.exclusive() as pipeline:
            _OCCLUSION[stored] = attention_analysis.occluded_logps(pipeline, stored.trace)
    whole, without = _OCCLUSION[stored]
    effects = whole[:, None] - without
    correlations = {}
    for name in (MEAN, *names):
        weights = alignment_matrix(stored.trace, name)
        correlations[name] = attention_analysis.agreement(weights, effects)
    return {
        "effects": effects.tolist(),
        "logps": without.tolist(),
        "rank_correlations": correlations,
    }


def beam_tree(stored: StoredTrace, beam: int) -> dict[str, Any]:
    """Every hypothesis of a beam search for the source of a trace, with its forced tokens."""
    check_model(stored)
    changes = stored.trace.edits
    forced = {one.step: one.token for one in changes if isinstance(one, ForceToken)}
    if len(forced) < len(changes):
        _check_unedited(stored, "an edited model generates greedily, without a beam")
    with stored.model.exclusive() as pipeline:
        search = search_for(pipeline, replace(stored.request.options, beam=beam))
        if not isinstance(search, Beam):
            search = Beam(1, constraints=search.constraints, template=search.template)
        return _describe_tree(
            pipeline,
            beam_search_tree.beam_tree(pipeline, stored.request.source, search, forced=forced),
        )


def check_position(stored: StoredTrace, side: str, position: int) -> None:
    """Raise if a side has no such position."""
    try:
        stored.trace.piece(side, position)
    except RegardError as error:
        raise invalid(str(error), "out-of-range") from None


def _check_unedited(stored: StoredTrace, reason: str) -> None:
    if stored.request.edits:
        raise HttpError(422, "edited", f"{reason}; remove the edits")


def _tokenizer(stored: StoredTrace, side: str) -> Tokenizer:
    bundle = stored.model.pipeline.bundle
    return bundle.source if side == "source" else bundle.target


def _lens_row(target: Tokenizer, ps: Row, id: int) -> dict[str, Any]:
    """The prediction read at one point of the residual stream."""
    best = ps.topk(min(LENS_TOP, len(ps))).indices.tolist()
    top = [{"id": i, "text": target.label(i), "p": float(ps[i])} for i in best]
    return {"rank": rank(ps, id), "p": float(ps[id]), "top": top}


def _describe_tree(pipeline: Pipeline, made: BeamTree) -> dict[str, Any]:
    target, penalty = pipeline.bundle.target, made.search.length_penalty
    nodes = []
    for node, label in zip(made.nodes, made.labels, strict=True):
        ids = made.ids(node.number)
        prefix = target.decode(ids)
        nodes.append(
            {
                "number": node.number,
                "parent": node.parent,
                "step": node.step,
                "id": node.token,
                "text": label,
                "logp": node.logp,
                "total": node.total,
                "score": node.score,
                "status": node.status,
                "pruned_by": node.pruned_by,
                "margin": node.margin,
                "prefix": prefix,
                "retokenizes": target.encode(prefix.strip()) == ids,
            }
        )
    steps = 1 + max(node.step for node in made.nodes)
    return {
        "beam": made.search.size,
        "length_penalty": {"alpha": penalty.alpha, "kind": penalty.kind},
        "divisors": [penalty.divisor(step + 1) for step in range(steps)],
        "nodes": nodes,
        "outputs": made.answers,
    }
