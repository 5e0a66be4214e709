"""`regard predict`: an answer for each input line, in order, written as soon as it is found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.answer import Answer
from regard.commands.answer_formats import AnswerFormat, FileConversion, choose_format
from regard.commands.inputs import InputLine, Inputs
from regard.commands.options import OutputFormat
from regard.commands.output_files import PredictOutput, open_output, resolve_link
from regard.commands.progress import Progress
from regard.commands.shard_files import ShardFile
from regard.commands.shards import Shard, ShardRecord, is_complete
from regard.decoding_options import DecodingOptions
from regard.errors import RegardError
from regard.loading import fingerprint, load_pipeline
from regard.pipeline import Pipeline


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
    shard: Shard | None = None

    def shard_record(self, conversion: FileConversion | None) -> ShardRecord | None:
        """What identifies the shard's file; None for a whole output or standard output."""
        if self.shard is None or self.output is None:
            return None
        path = self.shard.path(resolve_link(self.output))
        converted = None if conversion is None else asdict(conversion)
        return ShardRecord(path, self.shard, self.inputs.identity, converted)

    def dependencies(self, engine: str) -> dict[str, object]:
        """Everything except the input lines that the output depends on, by option name."""
        options = {**asdict(self.form), **asdict(self.decoding)}
        options |= {"precision": self.precision, "long": self.long, "engine": engine}
        options["max_source_length"] = self.max_source_length
        named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        identity = "+".join(map(fingerprint, self.bundles))
        return {"bundle": identity, **named}


def load_for(job: PredictJob) -> Pipeline:
    """The pipeline of a job."""
    bundles = job.bundles[0] if len(job.bundles) == 1 else job.bundles
    how: dict[str, Any] = {"engine": job.engine, "device": job.device, "precision": job.precision}
    how["max_source_length"] = job.max_source_length
    return load_pipeline(bundles, long=job.long, **how)


def predict(job: PredictJob, pipeline: Pipeline | None = None) -> None:
    """Answer every input line; a window of lines is written before the next one is read.

    `pipeline` is that of an earlier job with the same model.
    """
    form = choose_format(job)
    pipeline = pipeline or load_for(job)
    options = job.dependencies(pipeline.engine_of(job.decoding))
    shard = job.shard_record(form.conversion)
    if shard is not None and not job.restart and is_complete(shard, options):
        print(f"{shard.path}: complete already", file=sys.stderr)
        return
    again = {"restart": job.restart}
    with (
        ShardFile(shard, options, **again)
        if shard is not None
        else open_output(job.output, options, convert=form.conversion, **again) as out,
        Progress(job.inputs.count, done=out.done, quiet=job.inputs.interactive) as progress,
    ):
        for note in job.inputs.notes:
            progress.say(note)
        if out.done:
            progress.say(f"{out.name}: resuming after {out.done:,} lines")
        try:
            _answer_lines(job, pipeline, form, out, progress)
        except KeyboardInterrupt:
            if out.name:
                progress.say(
                    f"{out.name}: interrupted after {out.done:,} lines; run the same command "
                    "again to resume"
                )
            raise
        out.finish()
    if out.rejected:
        raise RejectedSources(out.rejected)


def _answer_lines(
    job: PredictJob,
    pipeline: Pipeline,
    form: AnswerFormat,
    out: PredictOutput,
    progress: Progress,
) -> None:
    """Write the answers to all lines that have none yet."""
    before = job.inputs.count_before() if form.numbered else 0
    for window in out.remaining(job.inputs.windows()):
        texts = (line.text for line in window)
        answers = pipeline.answers(texts, job.decoding, first=len(window))
        written = [form.head] if not out.done and job.inputs.begins else []
        rejected = 0
        for number, line in enumerate(window, before + out.done + 1):
            found = next(answers)
            rejected += _warn(progress, line, found)
            written.append(form.write(pipeline, number, found))
        out.write(window, "".join(written), rejected)
        progress.advance(len(window))


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
