"""Output: what the model would say after a row, how sure it is, and from which layer on it knows."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explore.refusals import invalid
from regard.explore.traces import Held

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer

STREAMS = {"pre": r"tgt\.sum|dec\.\d+\.resid\d|dec\.norm", "post": r"tgt\.sum|dec\.\d+\.norm\d"}
LENS_TOP = 3
Row = Float[Tensor, " vocabulary"]


@torch.no_grad()
def output(held: Held, row: int, n: int, word: str | None) -> dict[str, Any]:
    """The likeliest tokens after a target row; a word's own place among them; and the same through the layers."""
    trace, target = held.trace, held.model.transducer.bundle.target
    if not 0 <= row < len(trace.target):
        raise invalid(f"row {row} is not one of the target's 0 to {len(trace.target) - 1}", "out-of-range")
    logits, logps = trace["out.logits"][row], trace["out.logprobs"][row]
    order = logps.topk(min(n, len(logps))).indices.tolist()
    followed = trace.following[row].id if word is None else token(target, word)
    entropy = float(torch.special.entr(logps.double().exp()).sum()) / math.log(2)
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
        "entropy": entropy,
        "lens": [_looked(held, name, row, followed) for name in lenses(held)],
    }


def token(tokenizer: Tokenizer, word: str) -> int:
    """The id of a typed word: the first of its tokens."""
    ids = tokenizer.encode(word) or tokenizer.encode(word.strip())
    if not ids:
        raise invalid("the word is empty; type one", "empty")
    return ids[0]


def rank(numbers: Row, id: int) -> int:
    """How many tokens are at least as likely; the likeliest has rank 1. Of equals the first id comes first."""
    own = numbers[id]
    return 1 + int((numbers > own).sum()) + int((numbers[:id] == own).sum())


def lenses(held: Held) -> list[str]:
    """The vectors that go from layer to layer of the decoder, in order: sums, or their norms where these come after,
    and the last norm. A recurrent model has no such stream: its states are nothing that the output table could read."""
    stream = re.compile(STREAMS.get(held.model.settings.get("placement", ""), "(?!)"))
    return [name for name in held.trace.names if stream.fullmatch(name)]


def _looked(held: Held, name: str, row: int, id: int) -> dict[str, Any]:
    """What the output layer would say if the stream ended here (nostalgebraist 2020)."""
    model: Any = held.model.transducer.model
    vector = held.trace[name][row]
    normed = vector if name == "dec.norm" else model.decoder_norm(vector)
    ps = model.project(normed[None])[0].float().softmax(-1)
    label = held.model.transducer.bundle.target.label
    top = [{"id": i, "text": label(i), "p": float(ps[i])} for i in ps.topk(min(LENS_TOP, len(ps))).indices.tolist()]
    return {"at": name, "rank": rank(ps, id), "p": float(ps[id]), "top": top}


def _told(logits: Row, logps: Row, id: int) -> dict[str, Any]:
    return {"logit": float(logits[id]), "logp": float(logps[id])}
