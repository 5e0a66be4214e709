"""Output: what the model would say after a row, how sure it is, and from which layer on it knows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from regard.explore.refusals import invalid
from regard.explore.traces import Held
from regard.trace.attention_analysis import bits
from regard.trace.residual_analysis import Row, logit_lens, rank

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer

LENS_TOP = 3


def output(held: Held, row: int, n: int, word: str | None) -> dict[str, Any]:
    """The likeliest tokens after a target row; a word's own place among them; and the same through the layers."""
    trace, target = held.trace, held.model.pipeline.bundle.target
    if not 0 <= row < len(trace.target):
        raise invalid(f"row {row} is not one of the target's 0 to {len(trace.target) - 1}", "out-of-range")
    logits, logps = trace["out.logits"][row], trace["out.logprobs"][row]
    order = logps.topk(min(n, len(logps))).indices.tolist()
    followed = trace.following[row].id if word is None else token(target, word)
    return {
        "row": row,
        "top": [
            {"id": id, **_told(logits, logps, id), "text": target.label(id), "p": math.exp(float(logps[id]))}
            for id in order
        ],
        "word": None
        if word is None
        else {
            "id": followed,
            "text": target.label(followed),
            "rank": rank(logps, followed),
            **_told(logits, logps, followed),
        },
        "vocabulary": len(logps),
        "entropy": float(bits(logps.double().exp())),
        "lens": [_looked(target, name, ps, followed) for name, ps in logit_lens(trace, row).items()],
    }


def token(tokenizer: Tokenizer, word: str) -> int:
    """The id of a typed word: the first of its tokens."""
    ids = tokenizer.encode(word) or tokenizer.encode(word.strip())
    if not ids:
        raise invalid("the word is empty; type one", "empty")
    return ids[0]


def _looked(target: Tokenizer, name: str, ps: Row, id: int) -> dict[str, Any]:
    """What the model would say if its stream ended here."""
    best = ps.topk(min(LENS_TOP, len(ps))).indices.tolist()
    top = [{"id": i, "text": target.label(i), "p": float(ps[i])} for i in best]
    return {"at": name, "rank": rank(ps, id), "p": float(ps[id]), "top": top}


def _told(logits: Row, logps: Row, id: int) -> dict[str, Any]:
    return {"logit": float(logits[id]), "logp": float(logps[id])}
