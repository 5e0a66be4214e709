"""Teacher outputs: the targets of sequence-level distillation (Kim & Rush 2016), cached on disk.

The outputs are written window by window. A killed run continues after the last complete window,
so every window is decoded in the same composition as without the kill.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from regard.disk import fsync_path, write_atomically
from regard.errors import RegardError
from regard.text import Pair
from regard.training.checkpoint import read_state, write_state

WINDOW = 2_048  # sources decoded together, and lost at most by a kill
KEY, OUTPUTS, PARTIAL = "key.json", "outputs.jsonl", "outputs.jsonl.partial"
TRAINING_PAIRS, HELD_OUT_PAIRS = "train.jsonl", "held_out.jsonl"
OWN_FILES = {
    *(KEY, OUTPUTS, PARTIAL, TRAINING_PAIRS, HELD_OUT_PAIRS),
    *(f"{name}.partial" for name in (KEY, TRAINING_PAIRS, HELD_OUT_PAIRS)),
}


class TeacherOutputs:
    """The best output of a teacher for each source, in a folder of its own.

    `key` names what the outputs depend on: the teacher, the data and the search options. A folder
    with another key raises.
    """

    def __init__(self, folder: Path, key: dict[str, Any]) -> None:
        self.folder = folder
        key = json.loads(json.dumps(key))
        stored = read_state(folder / KEY, set())
        if stored is None:
            check_folder(folder)
            folder.mkdir(parents=True, exist_ok=True)
            write_state(folder / KEY, key)
        else:
            changed = [name for name in {**stored, **key} if stored.get(name) != key.get(name)]
            if changed:
                raise RegardError(
                    f"the outputs in {str(folder)!r} were made with another {changed[0]}; use the "
                    "old one, --restart to start over, or another --out"
                )

    @property
    def complete(self) -> bool:
        """Whether all sources have their outputs."""
        return (self.folder / OUTPUTS).exists()

    def fill(
        self,
        sources: Iterable[str],
        decode: Callable[[list[str]], list[str]],
        report: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Decode all sources that have no output yet; `report` receives the number done."""
        if self.complete:
            return
        partial = self.folder / PARTIAL
        done = _keep_complete_windows(partial)
        left = islice(sources, done, None)
        report(done)
        with open(partial, "ab") as file:
            while window := list(islice(left, WINDOW)):
                rows = zip(window, decode(window), strict=True)
                file.write("".join(_line(Pair(*row)) for row in rows).encode())
                file.flush()
                os.fsync(file.fileno())
                done += len(window)
                report(done)
        partial.replace(self.folder / OUTPUTS)
        fsync_path(self.folder)

    def __iter__(self) -> Iterator[Pair]:
        """Each source with its output."""
        path = self.folder / OUTPUTS
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                    pair = Pair(str(row["source"]), str(row["target"]))
                except (ValueError, KeyError, TypeError):
                    what = f"{str(path)!r} is damaged at line {number:,}"
                    raise RegardError(f"{what}; start over with --restart") from None
                yield pair


def distinct_pairs(*parts: Iterable[tuple[str, str]]) -> Iterator[Pair]:
    """All pairs of several parts, each once and in order, without those with an empty side.

    The outputs of teachers often equal the reference, and those of several teachers each other.
    """
    seen: set[tuple[str, str]] = set()
    for part in parts:
        for source, target in part:
            pair = Pair(source, target)
            if source.strip() and target.strip() and pair not in seen:
                seen.add(pair)
                yield pair


def write_pairs(path: Path, pairs: Iterable[Pair]) -> int:
    """Write pairs as JSON lines, atomically; returns their number."""
    lines = [_line(pair) for pair in pairs]
    write_atomically(path, "".join(lines))
    return len(lines)


def check_folder(folder: Path) -> None:
    """Raise if a folder has files that are not those of teacher outputs."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name not in OWN_FILES:
            raise RegardError(f"{str(path)!r} belongs to no run and would be lost; move it")


def _line(pair: Pair) -> str:
    return json.dumps({"source": pair.source, "target": pair.target}, ensure_ascii=False) + "\n"


def _keep_complete_windows(path: Path) -> int:
    """Truncate a partial file to complete windows; returns the number of lines that stay."""
    if not path.exists():
        return 0
    kept = position = end = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            position += len(line)
            if number % WINDOW == 0 and line.endswith(b"\n"):
                kept, end = number, position
    os.truncate(path, end)
    return kept
