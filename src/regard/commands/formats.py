"""Records: answers as lines, for people and `cut` between tabs, for programs as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from regard.answer import Answer
from regard.commands.options import Form
from regard.pipeline import Pipeline
from regard.search.attention_weights import links as pairs

SPACES = str.maketrans("\t\n\r", "   ")  # a line stays a line, and a column a column


def record(pipeline: Pipeline, number: int, answers: Sequence[Answer], form: Form) -> str:
    """The answers to the line of that number, each with its line end."""
    chosen = list(answers[: form.n_best])
    if form.alignments:
        chosen = [pipeline.looked(answer, alignment=True) if answer.source else answer for answer in chosen]
    if form.json:
        return json.dumps(_object(pipeline, chosen, form), ensure_ascii=False) + "\n"
    return "".join("\t".join(_columns(number, answer, form)) + "\n" for answer in chosen)


def links(answer: Answer) -> str:
    """The source token that each answer token looked at most, as i-j in tokens from 0 (Pharaoh's way)."""
    if answer.alignment is None:
        return ""
    return " ".join(f"{i}-{j}" for i, j in pairs(answer.alignment))


def _columns(number: int, answer: Answer, form: Form) -> list[str]:
    columns = [str(number)] if form.n_best > 1 else []
    columns += [f"{answer.score:.4f}"] if form.scores or form.n_best > 1 else []
    columns.append(answer.text.translate(SPACES))
    columns += [links(answer)] if form.alignments else []
    return columns


def _object(pipeline: Pipeline, answers: Sequence[Answer], form: Form) -> dict[str, Any]:
    best = answers[0]
    found = {"source": best.source, **_fields(best, form)}
    if best.unknown:
        found["unknown"] = best.unknown
    if form.alignments:
        tokenizer = pipeline.bundle.source
        found["source_tokens"] = [tokenizer.label(id) for id in tokenizer.encode(best.source)]
    if form.n_best > 1:
        found["alternatives"] = [_fields(answer, form) for answer in answers[1:]]
    return found


def _fields(answer: Answer, form: Form) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "text": answer.text,
        "tokens": answer.tokens,
        "logps": [number(logp) for logp in answer.logps],
        "logp": number(answer.logp),
        "score": number(answer.score),
    }
    if form.alignments:
        rows = [] if answer.alignment is None else answer.alignment.tolist()
        fields["alignment"] = [[number(weight) for weight in row] for row in rows]
    return fields


def number(value: float) -> float | None:
    """A number as JSON can hold it: six digits behind the point, and nothing for what is none."""
    return round(value, 6) if math.isfinite(value) else None
