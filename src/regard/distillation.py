"""Sequence-level distillation (Kim & Rush 2016): a small student learns the outputs of a teacher.

>>> student = regard.distill("runs/teacher", "pairs.tsv", out="runs/student", minutes=30)
>>> student.bundle.card["distillation"]["student"]["sources_per_second"]
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from regard import bundle
from regard.api import PathLike, group_settings, train
from regard.config import TextSettings, parse
from regard.decoding_options import SearchOptions
from regard.errors import RegardError
from regard.loading import fingerprint, load
from regard.model_location import find_model
from regard.pipeline import Pipeline
from regard.quality import EvaluationReport, evaluate_pipeline
from regard.reports import write_report
from regard.reports.collect import read_outputs
from regard.terminal import format_duration
from regard.text import Corpus, HeldOutSplit, collect_stats
from regard.text.heldout import hash_source
from regard.training.display import Display, open_display
from regard.training.interruption import Interrupted, interruptible
from regard.training.pairs import PairSource, as_corpus
from regard.training.run import remove_run
from regard.training.run_log import RunLog
from regard.training.teacher_outputs import (
    HELD_OUT_PAIRS,
    TRAINING_PAIRS,
    TeacherOutputs,
    check_folder,
    distinct_pairs,
    write_pairs,
)

REPORT_SECONDS = 10.0
WARM_UP = 16  # sources searched before speed is measured
# Settings of a Transformer teacher that its student does not take over.
STUDENT_DECIDES = {"kind", "encoder_layers", "decoder_layers", "dropout", "attention_backend"}


def distill(
    teacher: PathLike | Sequence[PathLike],
    pairs: Any,
    out: PathLike,
    *,
    held_out: Any = None,
    source: str | None = None,
    target: str | None = None,
    bad_lines: str = "stop",
    original: bool = False,
    decoding: SearchOptions | Mapping[str, Any] | None = None,
    size: str | None = None,
    device: str = "auto",
    restart: bool = False,
    display: Display | None = None,
    **settings: Any,
) -> Pipeline:
    """Train a student on a teacher's outputs for the training sources; returns its pipeline.

    `teacher`: a bundle, a run, an ensemble, or several of them. `pairs` and `held_out` are those of
    `regard.train`; the targets of `pairs` are used with `original`, and to measure quality.
    `decoding` are the options of the teacher's search, such as {"beam": 8}. The student has the
    preset `student` with the widths and parts of a Transformer teacher, or the preset `size`, and
    the teacher's tokenizers. Other options and `settings` are those of `regard.train`.

    The outputs are cached in `out`/teacher. After an interruption, the same call resumes.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RegardError(
            "distill runs in one process; start it without torchrun, or train on the cached "
            f"outputs: torchrun -m regard train {Path(out) / 'teacher' / TRAINING_PAIRS}"
        )
    columns: dict[str, Any] = {"source": source, "target": target, "bad_lines": bad_lines}
    corpus = as_corpus(pairs, **columns)
    given = None if held_out is None else as_corpus(held_out, **columns)
    several = [teacher] if isinstance(teacher, str | os.PathLike) else list(teacher)
    folders = [find_model(one) for one in several]
    search = decoding if isinstance(decoding, SearchOptions) else SearchOptions.of(**decoding or {})
    groups, options = _split_options(settings)
    text = parse(TextSettings, groups["text"], "text")
    job = _Distillation(folders, corpus, given, Path(out), search, text, device)
    if restart:
        job.remove()
    with RunLog(job.out / "log.jsonl") as log, display or open_display() as shown:
        training, held_out_pairs = job.prepare(log, shown.message, original=original)
    model = _student_settings(folders[0], size, groups["model"])
    student = train(
        training,
        out,
        held_out=held_out_pairs,
        tokenizers=folders[0],
        size=size or "student",
        device=device,
        display=display,
        **{**options, **groups, "model": model},
    )
    return job.compare(student, original=original)


class _Distillation:
    """The teacher's part of a distillation: outputs, their cache, and the comparison."""

    def __init__(
        self,
        folders: Sequence[Path],
        corpus: PairSource,
        held_out: PairSource | None,
        out: Path,
        search: SearchOptions,
        text: TextSettings,
        device: str,
    ) -> None:
        self.folders, self.corpus, self.held_out = folders, corpus, held_out
        self.out, self.search, self.text = out, search, text
        self.device, self.cache = device, out / "teacher"

    def load_teacher(self) -> Pipeline:
        """The teacher on the device of the run."""
        return load(self.folders, device=self.device, long="allow")

    def key(self) -> dict[str, Any]:
        """What the outputs depend on, by the name that an error uses."""
        return {
            "teacher": [fingerprint(folder) for folder in self.folders],
            "data file or way of reading it": self.corpus.fingerprint(),
            "held-out set": None if self.held_out is None else self.held_out.fingerprint(),
            "search": asdict(self.search),
            "text.split_seed": self.text.split_seed,
            "text.max_tokens": self.text.max_tokens,
        }

    def remove(self) -> None:
        """Remove an earlier run and its teacher outputs."""
        check_folder(self.cache)
        remove_run(self.out, [self.corpus, self.held_out])
        shutil.rmtree(self.cache, ignore_errors=True)

    def prepare(
        self, log: RunLog, message: Callable[[str], None], *, original: bool
    ) -> tuple[Corpus, PairSource]:
        """Decode the training sources; returns the student's training and held-out pairs."""
        outputs = TeacherOutputs(self.cache, self.key())
        paths = self.cache / TRAINING_PAIRS, self.cache / HELD_OUT_PAIRS
        seed, held_out = self.text.split_seed, self.held_out
        split = None
        if held_out is None:
            split = collect_stats(self.corpus, seed=seed).split
            assert split is not None
            if not paths[1].exists():
                write_pairs(paths[1], split.held_out_pairs(self.corpus))
            held_out = Corpus([paths[1]])
        if not outputs.complete:
            log.write("decoding", teachers=[str(folder) for folder in self.folders])
            self._decode(outputs, split, message)
        used = self.corpus if split is None else split.training_pairs(self.corpus)
        write_pairs(paths[0], distinct_pairs(*([used] if original else []), outputs))
        if not paths[0].stat().st_size:
            names = ", ".join(map(str, self.folders))
            raise RegardError(f"all outputs of the teacher are empty; train {names} longer")
        return Corpus([paths[0]]), held_out

    def _decode(
        self, outputs: TeacherOutputs, split: HeldOutSplit | None, message: Callable[[str], None]
    ) -> None:
        teacher, start = self.load_teacher(), time.monotonic()
        total = sum(1 for _ in self._sources(teacher, split))
        first: int | None = None
        due = start

        def decode(lines: list[str]) -> list[str]:
            if name := interruption():
                raise Interrupted(name, "outputs are saved; run the same command to resume")
            return [some[0].text for some in teacher.answers(lines, self.search, first=len(lines))]

        def report(done: int) -> None:
            nonlocal first, due
            now = time.monotonic()
            if first is None:
                first = done
                message(f"teacher: {done:,} of {total:,} sources are decoded already")
            elif now >= due or done == total:
                rate = (done - first) / max(1e-9, now - start)
                left = format_duration((total - done) / max(1e-9, rate))
                share = f"{100 * done / max(1, total):.0f} %"
                message(
                    f"teacher: {done:,} of {total:,} sources ({share}), {rate:,.0f} sources/s, "
                    f"{left} left"
                )
                due = now + REPORT_SECONDS

        with interruptible() as interruption:
            outputs.fill(self._sources(teacher, split), decode, report)

    def _sources(self, teacher: Pipeline, split: HeldOutSplit | None) -> Iterator[str]:
        """Each training source once; those that training would skip as too long are left out."""
        seen: set[int] = set()
        for pair in self.corpus:
            if split is not None and split.is_held_out(pair.source):
                continue
            hashed = hash_source(pair.source, 0)
            tokens = teacher.bundle.source.encode(pair.source)
            if hashed not in seen and len(tokens) <= self.text.max_tokens:
                seen.add(hashed)
                yield pair.source

    def compare(self, student: Pipeline, *, original: bool) -> Pipeline:
        """The student with the quality and speed of both on its card; measured only once."""
        if "distillation" in student.bundle.card:
            return student
        rows = read_outputs(self.out / "held_out.jsonl")
        references = {row.source: row.references for row in rows}
        key = self.key()
        facts: dict[str, Any] = {
            "teachers": [str(folder) for folder in self.folders],
            "fingerprints": key["teacher"],
            "search": key["search"],
            "original_pairs": original,
            "device": student.device.type,
            "engine": student.engine_of(self.search),
            "held_out": len(references),
        }
        for name, pipeline in (("teacher", self.load_teacher()), ("student", student)):
            sources = list(islice(references, WARM_UP))
            list(pipeline.many(sources, self.search))
            report = evaluate_pipeline(pipeline, references, self.search)
            facts[name] = {
                "parameters": sum(one.numel() for one in pipeline.model.parameters()),
                **_measured(report),
            }
        data = {**self.corpus.fingerprint(), **student.bundle.card.get("data", {})}
        card = {**student.bundle.card, "data": data, "distillation": facts}
        bundle.save(self.out / "bundle", student.bundle.with_card(card))
        write_report(self.out)
        return load(self.out, device=self.device)


def _measured(report: EvaluationReport) -> dict[str, Any]:
    """The metrics of a report, its speed and its notes."""
    values = {name: one["value"] for name, one in report.metrics.items()}
    speed = round(report.per_second, 2)
    return {"metrics": values, "sources_per_second": speed, "notes": report.notes}


def _split_options(settings: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Settings by group, and the other options of `regard.train`."""
    names = ("family", "callbacks", "metrics", "extend", "tensorboard", "command")
    options = {name: value for name, value in settings.items() if name in names}
    rest = {name: value for name, value in settings.items() if name not in names}
    return group_settings(rest), options


def _student_settings(teacher: Path, size: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The model settings of a student: widths and parts of its teacher, unless a size is given."""
    settings = bundle.read(teacher).settings.model_dump()
    settings = settings["members"][0] if settings["kind"] == "ensemble" else settings
    if size is not None or settings["kind"] != "transformer" or "kind" in given:
        return dict(given)
    taken = {name: value for name, value in settings.items() if name not in STUDENT_DECIDES}
    return {**taken, **given}
