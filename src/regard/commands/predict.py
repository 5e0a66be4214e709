"""Predict: an answer for each line, in order, streaming; what `regard predict` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from regard.answer import Answer
from regard.commands.formats import record
from regard.commands.inputs import Inputs, Line
from regard.commands.loading import chosen, fingerprint, opened
from regard.commands.options import Draw, Form, Search
from regard.commands.output_files import output
from regard.commands.progress import Progress


@dataclass(frozen=True)
class Job:
    """All that was asked for."""

    bundle: Path
    inputs: Inputs
    output: Path | None = None
    form: Form = field(default_factory=Form)
    search: Search = field(default_factory=Search)
    draw: Draw = field(default_factory=Draw)
    long: str = "warn"
    device: str = "auto"
    restart: bool = False

    def depends(self) -> dict[str, object]:
        """What the answers depend on, by the names people gave it."""
        options = {**asdict(self.form), **asdict(self.search), **asdict(self.draw), "long": self.long}
        named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        return {"bundle": fingerprint(self.bundle), **named}


def predict(job: Job) -> None:
    """Answer every line of the inputs; a window of lines is answered and written before the next is read."""
    pipeline = opened(job.bundle, device=job.device, long=job.long, precision=job.search.precision)
    search = chosen(pipeline, job.form, job.search, job.draw)
    with (
        output(job.output, job.depends(), restart=job.restart) as out,
        Progress(job.inputs.count, done=out.done, quiet=job.inputs.live) as progress,
    ):
        if out.done:
            progress.say(f"{job.output}: going on after {out.done:,} lines")
        try:
            for window in out.left(job.inputs.windows()):
                answers = pipeline.answers((line.text for line in window), search, first=len(window))
                written = []
                for number, (line, found) in enumerate(zip(window, answers, strict=True), out.done + 1):
                    _warn(progress, line, found)
                    written.append(record(pipeline, number, found, job.form))
                out.write(window, "".join(written))
                progress.advance(len(window))
        except KeyboardInterrupt:
            if job.output is not None:
                progress.say(f"{job.output}: interrupted after {out.done:,} lines; the same command goes on from there")
            raise
        out.finish()


def _warn(progress: Progress, line: Line, answers: Sequence[Answer]) -> None:
    """Tell of symbols that the model has never seen."""
    if unknown := answers[0].unknown:
        symbols = ", ".join(map(repr, dict.fromkeys(unknown)))
        way = "; is this a table? Name its --column" if "\t" in unknown else ""
        progress.warn("more lines hold unknown symbols", f"{line.place}: the model does not know {symbols}{way}")
