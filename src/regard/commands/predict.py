"""`regard predict`: an answer for each input line, in order, written as soon as it is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from regard.answer import Answer
from regard.commands.formats import (
    answer_header,
    format_answer_rows,
    format_answers,
    format_rows,
)
from regard.commands.inputs import InputLine, Inputs, TableStyle
from regard.commands.options import OutputFormat
from regard.commands.output_files import open_output
from regard.commands.progress import Progress
from regard.decoding_options import DecodingOptions
from regard.errors import RegardError
from regard.loading import fingerprint, load_pipeline


@dataclass(frozen=True)
class PredictJob:
    """The inputs, output and options of one `regard predict` command."""

    bundles: Sequence[Path]
    inputs: Inputs
    output: Path | None = None
    form: OutputFormat = field(default_factory=OutputFormat)
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    precision: str | None = None
    long: str = "warn"
    max_source_length: int | None = None
    engine: str = "auto"
    device: str = "auto"
    restart: bool = False

    def dependencies(self, engine: str) -> dict[str, object]:
        """Everything except the input lines that the output depends on, by option name."""
        options = {**asdict(self.form), **asdict(self.decoding)}
        options |= {"precision": self.precision, "long": self.long, "engine": engine}
        options["max_source_length"] = self.max_source_length
        named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        identity = "+".join(map(fingerprint, self.bundles))
        return {"bundle": identity, **named}


def predict(job: PredictJob) -> None:
    """Answer every input line; a window of lines is written before the next one is read."""
    table = choose_table(job)
    bundles = job.bundles[0] if len(job.bundles) == 1 else job.bundles
    how: dict[str, Any] = {"engine": job.engine, "device": job.device, "precision": job.precision}
    how["max_source_length"] = job.max_source_length
    pipeline = load_pipeline(bundles, long=job.long, **how)
    engine, n_best = pipeline.engine_of(job.decoding), job.decoding.n_best
    convert = None if table is None else table.convert
    with (
        open_output(
            job.output, job.dependencies(engine), restart=job.restart, convert=convert
        ) as out,
        Progress(job.inputs.count, done=out.done, quiet=job.inputs.interactive) as progress,
    ):
        for note in job.inputs.notes:
            progress.say(note)
        if out.done:
            progress.say(f"{job.output}: resuming after {out.done:,} lines")
        try:
            for window in out.remaining(job.inputs.windows()):
                texts = (line.text for line in window)
                answers = pipeline.answers(texts, job.decoding, first=len(window))
                written, rejected = [], 0
                for number, line in enumerate(window, out.done + 1):
                    found = next(answers)
                    rejected += _warn(progress, line, found)
                    if table is None:
                        written.append(format_answers(pipeline, number, found, job.form, n_best))
                    else:
                        rows = (pipeline, found, job.form, n_best, table.delimiter)
                        written.append(format_answer_rows(*rows))
                if table is not None and not out.done:
                    written.insert(0, table.head)
                out.write(window, "".join(written), rejected)
                progress.advance(len(window))
        except KeyboardInterrupt:
            if job.output is not None:
                progress.say(
                    f"{job.output}: interrupted after {out.done:,} lines; run the same command "
                    "again to resume"
                )
            raise
        out.finish()
    if out.rejected:
        raise RejectedSources(out.rejected)


class TableOutput(NamedTuple):
    """How answers are written as a table: text before the first row, delimiter, and the conversion
    of the complete text to another format."""

    head: str
    delimiter: str
    convert: Callable[[Path, Path], None] | None = None


def choose_table(job: PredictJob) -> TableOutput | None:
    """The table format of the output: that of its name, or of the input on standard output."""
    table, suffix = job.inputs.table, "" if job.output is None else job.output.suffix.lower()
    if suffix in (".ods", ".xls", ".parquet"):
        raise RegardError(f"cannot write {str(job.output)!r}: use .xlsx, .csv or .tsv")
    text = job.output is not None and suffix not in (".csv", ".tsv", ".tab", ".xlsx")
    if job.form.json or text or (table is None and suffix != ".xlsx"):
        return None
    table = table or TableStyle("\t", None, False)
    name = table.header if suffix != ".xlsx" else table.header or "source"
    n_best = job.decoding.n_best
    header = [] if name is None else [answer_header(name, job.form, n_best)]
    if suffix == ".xlsx":
        from regard.text.workbooks import write_workbook

        return TableOutput(format_rows(header, ","), ",", write_workbook)
    delimiter = "\t" if suffix in (".tsv", ".tab") else table.delimiter
    if suffix == ".csv" and delimiter == "\t":
        delimiter = ","
    mark = "\ufeff" if table.bom and suffix == ".csv" else ""
    return TableOutput(mark + format_rows(header, delimiter), delimiter)


class RejectedSources(RegardError):
    """The output is complete, but some sources were too long: their answers are empty."""

    exit_code = 1

    def __init__(self, count: int) -> None:
        one = "source was rejected and has an empty answer; shorten it"
        some = "sources were rejected and have empty answers; shorten them"
        super().__init__(f"{count:,} {one if count == 1 else some}, or raise --max-source-length")


def _warn(progress: Progress, line: InputLine, answers: Sequence[Answer]) -> bool:
    """Warn about a rejected source, and about symbols that are not in the model's vocabulary.

    Returns whether the source was rejected.
    """
    if (error := answers[0].error) is not None:
        progress.warn("more rejected sources", f"{line.place}: rejected: {error}")
    if unknown := answers[0].unknown:
        symbols = ", ".join(map(repr, dict.fromkeys(unknown)))
        hint = "; if the input is a table, name the --column" if "\t" in unknown else ""
        progress.warn(
            "more lines with unknown symbols", f"{line.place}: unknown symbols {symbols}{hint}"
        )
    return error is not None
