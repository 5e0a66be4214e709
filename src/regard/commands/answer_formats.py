"""The format of the answers of `regard predict`: lines, a table, or a columnar file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.answer import Answer
from regard.commands.formats import (
    answer_header,
    format_alignment,
    format_answer_rows,
    format_answers,
    format_rows,
    has_attention,
    json_number,
)
from regard.commands.inputs import TableStyle
from regard.commands.options import OutputFormat
from regard.errors import RegardError
from regard.pipeline import Pipeline

if TYPE_CHECKING:
    from regard.commands.predict import PredictJob

COLUMNAR = (".parquet", ".arrow", ".feather")
TABLES = (".csv", ".tsv", ".tab", ".xlsx")
Write = Callable[[Pipeline, int, Sequence[Answer]], str]


@dataclass(frozen=True)
class FileConversion:
    """Converts the complete text of an output to the format of a suffix, with these columns."""

    suffix: str
    columns: tuple[str, ...] = ()

    def __call__(self, text: Path, path: Path) -> None:
        if self.suffix == ".xlsx":
            from regard.text.workbooks import write_workbook

            write_workbook(text, path)
        else:
            from regard.text.columnar import write_columnar

            write_columnar(text, path, self.suffix, self.columns)

    @classmethod
    def of(cls, record: Mapping[str, Any] | None) -> FileConversion | None:
        """The conversion in the record of a shard."""
        return None if record is None else cls(record["suffix"], tuple(record["columns"]))


class AnswerFormat(NamedTuple):
    """How answers are written: text before the first one, the text of the answers to an input (by
    its number), whether that shows the number, and the conversion of the complete text."""

    head: str
    write: Write
    numbered: bool
    conversion: FileConversion | None = None


def choose_format(job: PredictJob) -> AnswerFormat:
    """The format of the output: that of its name, or of the input on standard output."""
    suffix = "" if job.output is None else job.output.suffix.lower()
    form, n_best, table = job.form, job.decoding.n_best, job.inputs.table
    if suffix in COLUMNAR:
        return _columnar(suffix, form, n_best, job.output)
    if suffix in (".ods", ".xls"):
        raise RegardError(f"cannot write {str(job.output)!r}: use .xlsx, .csv, .tsv or .parquet")
    as_text = job.output is not None and suffix not in TABLES
    if form.json or as_text or (table is None and suffix != ".xlsx"):
        write = partial(_write_lines, form=form, n_best=n_best)
        return AnswerFormat("", write, n_best > 1 and not form.json)
    return _table(suffix, form, n_best, table or TableStyle("\t", None, False))


def _columnar(suffix: str, form: OutputFormat, n_best: int, path: Path | None) -> AnswerFormat:
    from regard.text.columnar import check_columnar

    check_columnar(str(path))
    columns = ["line"] * (n_best > 1) + ["source", "output", "score"]
    columns += ["alignment"] * form.alignments
    columns += ["tokens", "logps", "logp", "confidence", "unknown"] * form.json
    write = partial(_write_records, columns=columns, form=form, n_best=n_best)
    return AnswerFormat("", write, n_best > 1, FileConversion(suffix, tuple(columns)))


def _table(suffix: str, form: OutputFormat, n_best: int, table: TableStyle) -> AnswerFormat:
    name = table.header if suffix != ".xlsx" else table.header or "source"
    header = [] if name is None else [answer_header(name, form, n_best)]
    delimiter, mark, conversion = table.delimiter, "", None
    if suffix == ".xlsx":
        delimiter, conversion = ",", FileConversion(suffix)
    elif suffix in (".tsv", ".tab"):
        delimiter = "\t"
    elif suffix == ".csv":
        delimiter = "," if delimiter == "\t" else delimiter
        mark = "\ufeff" if table.bom else ""
    write = partial(_write_rows, form=form, n_best=n_best, delimiter=delimiter)
    return AnswerFormat(mark + format_rows(header, delimiter), write, False, conversion)


def _write_lines(
    pipeline: Pipeline, number: int, answers: Sequence[Answer], *, form: OutputFormat, n_best: int
) -> str:
    return format_answers(pipeline, number, answers, form, n_best)


def _write_rows(
    pipeline: Pipeline,
    number: int,
    answers: Sequence[Answer],
    *,
    form: OutputFormat,
    n_best: int,
    delimiter: str,
) -> str:
    return format_answer_rows(pipeline, answers, form, n_best, delimiter)


def _write_records(
    pipeline: Pipeline,
    number: int,
    answers: Sequence[Answer],
    *,
    columns: Sequence[str],
    form: OutputFormat,
    n_best: int,
) -> str:
    """The answers to one input as JSON lines, one for each row of a columnar file."""
    rows = []
    for answer in answers[:n_best]:
        if form.alignments and has_attention(answer):
            answer = pipeline.with_attention(answer, alignment=True)
        values = {
            "line": number,
            "source": answer.source,
            "output": answer.text,
            "score": json_number(answer.score),
            "alignment": format_alignment(answer),
            "tokens": answer.tokens,
            "logps": [json_number(logp) for logp in answer.logps],
            "logp": json_number(answer.logp),
            "confidence": json_number(answer.confidence),
            "unknown": answer.unknown,
        }
        row = {name: values[name] for name in columns}
        rows.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(rows)
