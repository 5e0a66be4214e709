"""Stage 1 of a run, read: the corpora, their statistics, and the checks of a resumed run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.bundle.manifest import TRAINING_SOURCES
from regard.config import TextSettings
from regard.errors import RegardError, choose
from regard.text import (
    TOKENIZERS,
    CorpusStats,
    Overlap,
    PairChecks,
    collect_stats,
    group_references,
)
from regard.text.corpus_tokenization import ID_FILES
from regard.text.target_consistency import consistency_warnings
from regard.training.checkpoint import read_state
from regard.training.fine_tuning import INITIAL_MODEL, GivenTokenizers
from regard.training.pairs import PairSource
from regard.training.preparation_progress import PreparationProgress, no_progress

MAX_HELD_OUT = {"cpu": 2_000, "cuda": 10_000}  # sources that are decoded in an evaluation
STATE_KEYS = {"decisions", "shared_vocabulary", "threshold", "fingerprint", "settings"} | {
    "frequent_target",
    "baselines",
}
STATE_FILE = "prepared.json"
SIDES = ("source", "target")
OWN_FILES = {"ids", "ids.partial"} | {
    f"{name}{ending}"
    for name in (
        STATE_FILE,
        TRAINING_SOURCES,
        "bad-lines.txt",
        *(f"{side}.tokenizer.json" for side in SIDES),
    )
    for ending in ("", ".partial")
}


@dataclass(frozen=True)
class RawData:
    """Result of `read`: the corpora and their statistics, or what an earlier start recorded."""

    corpus: PairSource
    held_out: PairSource | None
    text: TextSettings
    folder: Path
    max_held_out: int
    fingerprint: dict[str, str]
    recorded: dict[str, Any] | None
    stats: CorpusStats | None
    decisions: list[str]
    tokenizers: GivenTokenizers | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the prepared data depend on."""
        text = {f"text.{name}": value for name, value in self.text.model_dump().items()}
        given: dict[str, str | None] = {f"the {INITIAL_MODEL}": None}
        if self.tokenizers is not None:
            given[f"the {self.tokenizers.role}"] = self.tokenizers.fingerprint
        return {**text, **given}


def read(
    corpus: PairSource,
    held_out: PairSource | None,
    text: TextSettings,
    *,
    folder: Path,
    max_held_out: int = MAX_HELD_OUT["cpu"],
    tokenizers: GivenTokenizers | None = None,
    progress: PreparationProgress | None = None,
) -> RawData:
    """Stage 1: read the corpora once and collect their statistics."""
    _check_text(text)
    progress = progress or no_progress()
    fingerprint = corpus.fingerprint()
    if held_out is not None:
        files = held_out.fingerprint()
        fingerprint |= {f"held out: {name}": value for name, value in files.items()}
    recorded = read_state(folder / STATE_FILE, STATE_KEYS)
    found = fingerprint, recorded
    data = RawData(corpus, held_out, text, folder, max_held_out, *found, None, [], tokenizers)
    if recorded is not None:
        _check_unchanged(recorded, data)
        return data
    check_data_folder(folder)
    shutil.rmtree(folder / "ids", ignore_errors=True)  # of an interrupted preparation
    folder.mkdir(parents=True, exist_ok=True)
    reader = corpus.read(folder / "bad-lines.txt" if corpus.bad_lines == "skip" else None)
    known = None if held_out is None else group_references(held_out)
    overlap = Overlap(known or ())
    checks = PairChecks()
    progress.stage("reading the pairs")
    watched = overlap.watch(checks.watch(progress.watch(reader, "read")))
    stats = collect_stats(watched, seed=text.split_seed, hold_out=held_out is None)
    data.decisions.extend(corpus.decisions)
    data.decisions.extend([reader.summary()] if reader.problems else [])
    data.decisions.extend([*overlap.warnings(), *consistency_warnings(checks, known)])
    data.decisions.extend(checks.warnings())
    return replace(data, stats=stats)


def _check_text(text: TextSettings) -> None:
    """Raise for settings that are wrong whatever the data."""
    for kind in (text.source_tokenizer, text.target_tokenizer):
        choose({"auto": None, **TOKENIZERS}, kind, "tokenizer")
    kinds = {text.source_tokenizer, text.target_tokenizer} - {"auto"}
    if text.shared_vocabulary and len(kinds) > 1:
        raise RegardError(
            "text.shared_vocabulary needs the same tokenizer on both sides; "
            f"text.source_tokenizer is {text.source_tokenizer} and text.target_tokenizer is "
            f"{text.target_tokenizer}; make them equal, or set one to auto"
        )


def check_data_folder(folder: Path) -> None:
    """Raise if preparation would overwrite files that no run has written."""
    for path, own in ((folder, OWN_FILES), (folder / "ids", ID_FILES)):
        if path.exists() and not path.is_dir():
            raise RegardError(f"{str(path)!r} is a file, not a data folder; use another --out")
        for file in sorted(path.iterdir()) if path.exists() else ():
            if file.name not in own:
                raise RegardError(
                    f"{str(file)!r} belongs to no run and would be lost; use another --out"
                )


def _check_unchanged(recorded: dict[str, Any], data: RawData) -> None:
    """Raise if files or settings differ from those that the data were prepared from."""
    was, now = recorded["fingerprint"], data.fingerprint
    changed = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
    if changed:
        names = ", ".join(map(repr, changed))
        raise RegardError(
            f"the data changed since this run began: {names}; use the old data, or another --out"
        )
    defaults = {f"text.{name}": value for name, value in TextSettings().model_dump().items()}
    was, now = {**defaults, **recorded["settings"]}, data.settings  # newer settings have defaults
    differences = "; ".join(
        f"{name} was {was.get(name)!r} and is {now.get(name)!r}"
        for name in {**now, **was}
        if was.get(name) != now.get(name)
    )
    if differences:
        raise RegardError(
            f"the data were prepared with other settings: {differences}. Use the old ones, or "
            "another --out"
        )
