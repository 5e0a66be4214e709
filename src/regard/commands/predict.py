"""`regard predict`: an answer for each input line, in order, written as soon as it is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from regard.answer import Answer
from regard.commands.formats import format_answers
from regard.commands.inputs import InputLine, Inputs
from regard.commands.options import OutputFormat
from regard.commands.output_files import open_output
from regard.commands.progress import Progress
from regard.decoding_options import DecodingOptions
from regard.loading import fingerprint, load_pipeline


@dataclass(frozen=True)
class PredictJob:
    """The inputs, output and options of one `regard predict` command."""

    bundle: Path
    inputs: Inputs
    output: Path | None = None
    form: OutputFormat = field(default_factory=OutputFormat)
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    precision: str = "float32"
    long: str = "warn"
    device: str = "auto"
    restart: bool = False

    def dependencies(self) -> dict[str, object]:
        """Everything except the input lines that the output depends on, by option name."""
        options = {**asdict(self.form), **asdict(self.decoding)}
        options |= {"precision": self.precision, "long": self.long}
        named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        return {"bundle": fingerprint(self.bundle), **named}


def predict(job: PredictJob) -> None:
    """Answer every input line; a window of lines is written before the next one is read."""
    pipeline = load_pipeline(job.bundle, device=job.device, long=job.long, precision=job.precision)
    search = pipeline.search(job.decoding)
    with (
        open_output(job.output, job.dependencies(), restart=job.restart) as out,
        Progress(job.inputs.count, done=out.done, quiet=job.inputs.interactive) as progress,
    ):
        if out.done:
            progress.say(f"{job.output}: resuming after {out.done:,} lines")
        try:
            for window in out.remaining(job.inputs.windows()):
                texts = (line.text for line in window)
                answers = pipeline.answers(texts, search, first=len(window))
                written = []
                for number, line in enumerate(window, out.done + 1):
                    found = next(answers)
                    _warn_unknown(progress, line, found)
                    n_best = job.decoding.n_best
                    written.append(format_answers(pipeline, number, found, job.form, n_best))
                out.write(window, "".join(written))
                progress.advance(len(window))
        except KeyboardInterrupt:
            if job.output is not None:
                progress.say(
                    f"{job.output}: interrupted after {out.done:,} lines; run the same command "
                    "again to resume"
                )
            raise
        out.finish()


def _warn_unknown(progress: Progress, line: InputLine, answers: Sequence[Answer]) -> None:
    """Warn about symbols that are not in the model's vocabulary."""
    if unknown := answers[0].unknown:
        symbols = ", ".join(map(repr, dict.fromkeys(unknown)))
        hint = "; if the input is a table, name the --column" if "\t" in unknown else ""
        progress.warn(
            "more lines with unknown symbols", f"{line.place}: unknown symbols {symbols}{hint}"
        )
