"""Output formats: tab-separated lines, JSON and plain-text tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from regard.answer import Answer, links
from regard.commands.options import OutputFormat
from regard.pipeline import Pipeline
from regard.terminal import sanitize

SPACES = str.maketrans("\t\n\r", "   ")  # keeps one answer on one line and in one column
WIDEST_CELL = 60


def format_answers(
    pipeline: Pipeline, number: int, answers: Sequence[Answer], form: OutputFormat, n_best: int = 1
) -> str:
    """The answers to one input line, as output lines; `number` is that of the input line."""
    chosen = list(answers[:n_best])
    if form.alignments:
        chosen = [
            pipeline.with_attention(answer, alignment=True) if has_attention(answer) else answer
            for answer in chosen
        ]
    if form.json:
        fields = _json_object(pipeline, chosen, form, n_best)
        return json.dumps(fields, ensure_ascii=False) + "\n"
    rows = (_columns(number, answer, form, n_best) for answer in chosen)
    return "".join("\t".join(row) + "\n" for row in rows)


def format_answer_rows(
    pipeline: Pipeline,
    answers: Sequence[Answer],
    form: OutputFormat,
    n_best: int,
    delimiter: str,
) -> str:
    """The answers to one input as table rows: source, score (if wanted), output, alignment."""
    rows = []
    for answer in answers[:n_best]:
        if form.alignments and has_attention(answer):
            answer = pipeline.with_attention(answer, alignment=True)
        rows.append([answer.source, *_columns(0, answer, form, n_best)[n_best > 1 :]])
    return format_rows(rows, delimiter)


def has_attention(answer: Answer) -> bool:
    """Whether the model computed this answer: not if its source is empty or was rejected."""
    return bool(answer.source) and answer.error is None


def answer_header(source: str, form: OutputFormat, n_best: int) -> list[str]:
    """The names of the columns of `format_answer_rows`."""
    score = ["score"] if form.scores or n_best > 1 else []
    return [source, *score, "output", *(["alignment"] if form.alignments else [])]


def format_rows(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """Rows as tab-separated text without quotes, or as CSV with them."""
    if delimiter == "\t":
        return "".join("\t".join(cell.translate(SPACES) for cell in row) + "\n" for row in rows)
    import csv
    import io

    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()


def format_alignment(answer: Answer) -> str:
    """The most attended source token of each answer token, as i-j from 0 (Pharaoh format)."""
    if answer.alignment is None:
        return ""
    return " ".join(f"{i}-{j}" for i, j in links(answer.alignment))


def _columns(number: int, answer: Answer, form: OutputFormat, n_best: int) -> list[str]:
    columns = [str(number)] if n_best > 1 else []
    columns += [f"{answer.score:.4f}"] if form.scores or n_best > 1 else []
    columns.append(answer.text.translate(SPACES))
    columns += [format_alignment(answer)] if form.alignments else []
    return columns


def _json_object(
    pipeline: Pipeline, answers: Sequence[Answer], form: OutputFormat, n_best: int
) -> dict[str, Any]:
    best = answers[0]
    fields = {"source": best.source, **_json_fields(best, form)}
    if best.unknown:
        fields["unknown"] = best.unknown
    if best.error is not None:
        fields["error"] = best.error
    if form.alignments:
        tokenizer = pipeline.bundle.source
        fields["source_tokens"] = [tokenizer.label(id) for id in tokenizer.encode(best.source)]
    if n_best > 1:
        fields["alternatives"] = [_json_fields(answer, form) for answer in answers[1:]]
    return fields


def _json_fields(answer: Answer, form: OutputFormat) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "text": answer.text,
        "tokens": answer.tokens,
        "logps": [json_number(logp) for logp in answer.logps],
        "logp": json_number(answer.logp),
        "score": json_number(answer.score),
        "confidence": json_number(answer.confidence),
    }
    if form.alignments:
        rows = [] if answer.alignment is None else answer.alignment.tolist()
        fields["alignment"] = [[json_number(weight) for weight in row] for row in rows]
    return fields


def json_number(value: float) -> float | None:
    """A number with six decimals; null for infinities and NaN, which JSON does not have."""
    return round(value, 6) if math.isfinite(value) else None


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A plain-text table. The first `left` columns are left-aligned, the numbers after them right.

    Columns are as wide as their widest cell; longer cells are shortened.
    """
    from rich.cells import cell_len

    cells = [[_shorten(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(head))]

    def pad(text: str, column: int) -> str:
        padding = " " * (widths[column] - cell_len(text))
        return text + padding if column < left else padding + text

    lines = ("  ".join(pad(text, i) for i, text in enumerate(row)).rstrip() for row in cells)
    return "\n".join(f"  {line}" for line in lines)


def _shorten(text: str) -> str:
    text = sanitize(text)
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"
