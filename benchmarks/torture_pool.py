"""The processes of a torture: numbered cases in blocks, with a time limit for each case.

A worker that hangs, uses too much memory or crashes is replaced; the case becomes a failure and is
not repeated. Results are appended to a file block by block, so that a stopped torture resumes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HANG_SECONDS = 120.0  # for a case; on an idle machine, the slowest take a few seconds
MOST_BYTES = 4 << 30  # resident memory of a worker
FORK = multiprocessing.get_context("fork")


class Subject(ABC):
    """Something to torture. `prepare` runs once, in a process of its own. Its cases are pure
    functions of the seed and their number."""

    kills = False  # whether kills are counted, not cases
    block = 50  # cases whose results are recorded together

    def __init__(self, work: Path, seed: int) -> None:
        self.work, self.seed = work, seed

    @abstractmethod
    def prepare(self) -> None:
        """Write what the cases start from to `work / "prepared"`."""

    def preload(self) -> None:
        """Import what the cases need, before processes are forked."""
        return

    @abstractmethod
    def run(self, case: int, folder: Path) -> dict[str, int]:
        """Run a case in an empty folder; returns what to count. Any exception is a failure."""


@dataclass
class Worker:
    """A process and the case that it works on: its number, and since when."""

    process: Any
    case: Any
    since: Any


class Pool:
    """Runs cases in blocks until `wanted` are counted or the time is over."""

    def __init__(
        self, subject: Subject, work: Path, processes: int, wanted: int, until: float
    ) -> None:
        self.subject, self.work = subject, work
        self.processes, self.wanted, self.until = processes, wanted, until
        self.results, self.failures = work / "results.jsonl", work / "failures.jsonl"
        self.unit = "kills" if subject.kills else "cases"

    def run(self) -> tuple[Counter[str], list[dict[str, Any]]]:
        """The counts, and the failed cases."""
        if not (self.work / "prepared/ready").exists():
            self._prepare()
        self.subject.preload()
        done = {row["block"]: Counter(row["counts"]) for row in _rows(self.results)}
        self.next = FORK.Value("q", 0)
        self.counted = FORK.Value("q", sum(one[self.unit] for one in done.values()))
        self.done = set(done)
        workers = [self._start(number) for number in range(self.processes)]
        try:
            while any(worker.process.exitcode is None for worker in workers):
                time.sleep(0.05)
                for number, worker in enumerate(workers):
                    if (reason := self._failure(worker)) is not None:
                        self._record(worker.case.value, reason)
                        workers[number] = self._start(number)
        finally:
            for worker in workers:
                if worker.process.exitcode is None:  # interrupted
                    _kill_group(worker.process.pid)
        counts: Counter[str] = Counter()
        for row in _rows(self.results):
            counts.update(row["counts"])
        return counts, list(_rows(self.failures))

    def _prepare(self) -> None:
        process = FORK.Process(target=self.subject.prepare)
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"preparation failed with exit code {process.exitcode}")
        (self.work / "prepared/ready").touch()

    def _start(self, number: int) -> Worker:
        shared = FORK.Value("q", -1, lock=False), FORK.Value("d", 0.0, lock=False)
        process = FORK.Process(target=self._work, args=(number, *shared))
        worker = Worker(process, *shared)
        process.start()
        return worker

    def _failure(self, worker: Worker) -> str | None:
        """Why a worker must be replaced; None if it works or is done."""
        process = worker.process
        if process.exitcode is not None:
            return f"the process died with code {process.exitcode}" if process.exitcode else None
        if worker.case.value >= 0 and time.monotonic() - worker.since.value > HANG_SECONDS:
            _kill_group(process.pid)
            process.join()
            return f"it took longer than {HANG_SECONDS:.0f} seconds"
        return None

    def _record(self, case: int, reason: str) -> None:
        _append(self.failures, {"case": case, "failure": reason})

    def _work(self, number: int, current: Any, since: Any) -> None:
        """One worker: block after block."""
        os.setpgid(0, 0)  # so that a hanging case is killed with its children
        failed = {row["case"] for row in _rows(self.failures)}
        size = self.subject.block
        while self.counted.value < self.wanted and time.monotonic() < self.until:
            block = self._take_block()
            counts: Counter[str] = Counter()
            for case in range(block * size, (block + 1) * size):
                if case in failed:
                    continue
                since.value, current.value = time.monotonic(), case
                folder = self.work / f"worker-{number}"
                counts.update(self._run_case(case, folder))
            current.value = -1
            _append(self.results, {"block": block, "counts": counts})
            with self.counted.get_lock():
                self.counted.value += counts[self.unit]

    def _take_block(self) -> int:
        """The next block without a result."""
        with self.next.get_lock():
            while self.next.value in self.done:
                self.next.value += 1
            self.next.value += 1
            return int(self.next.value) - 1

    def _run_case(self, case: int, folder: Path) -> dict[str, int]:
        clear(folder)
        try:
            counts = self.subject.run(case, folder)
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MOST_BYTES, "memory"
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[-6:]
            places = " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in frames[::-1])
            self._record(case, f"{type(error).__name__}: {str(error)[:300]} ({places})")
            counts = {}
        return {"cases": 1, **counts}


def clear(folder: Path) -> None:
    """Make an empty folder; whatever is in its place is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _kill_group(process: int) -> None:
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(process, signal.SIGKILL)


def _append(path: Path, row: dict[str, Any]) -> None:
    """Append one line; a single write is not mixed with those of other processes."""
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(row).encode() + b"\n")


def _rows(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
