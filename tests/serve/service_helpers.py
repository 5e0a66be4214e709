"""A running service for tests, its recorded events, and offline answers to compare with."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from regard import load
from regard.pipeline import Pipeline
from regard.pretrained import MODELS
from regard.serve.service import ModelSpec, Service, ServiceLimits

SPELLING = Path(MODELS, "spelling")
RECURRENT = Path(MODELS, "spelling-recurrent")
TIMEOUT = 60.0  # no condition takes so long on a slow machine


class RecordedEvents:
    """Keeps all events of a service."""

    def __init__(self) -> None:
        self.all: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *values: self.all.append((name, values))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The values of all events of a name."""
        return [values for kind, values in self.all if kind == name]


class RunningService(Service):
    """A service with recorded events."""

    events: Any

    @property
    def workers(self) -> list[int]:
        """The workers of the model "spelling"."""
        return list(self.worker_pids["spelling"])

    def signal(self, number: int) -> None:
        """Send a signal to all workers."""
        for pid in self.workers:
            os.kill(pid, number)


@asynccontextmanager
async def serving(
    folder: Path = SPELLING, *, int8: bool = False, workers: int = 1, **limits: Any
) -> AsyncIterator[RunningService]:
    """A service of one model, "spelling"; drained at the end."""
    service = RunningService(
        [ModelSpec("spelling", folder, int8)],
        workers=workers,
        limits=ServiceLimits(**limits),
        events=RecordedEvents(),
    )
    await service.start()
    try:
        yield service
    finally:
        await service.drain()


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0.002)


def run(work: Awaitable[None]) -> None:
    """Run a test that waits for conditions."""

    async def limited() -> None:
        async with asyncio.timeout(2 * TIMEOUT):
            await work

    asyncio.run(limited())


@cache
def pipeline(folder: Path = SPELLING, precision: str | None = None) -> Pipeline:
    """The offline pipeline of a bundle."""
    return load(folder, device="cpu", long="allow", precision=precision)


def offline(texts: Sequence[str], folder: Path = SPELLING, **options: Any) -> list[list[Any]]:
    """For each text, the text and the log-probability of each answer by offline prediction."""
    most = options.get("n_best", 1)
    found = pipeline(folder).answers(texts, **options)
    return [[(one.text, round(one.logp, 4)) for one in answers[:most]] for answers in found]


def facts(found: Sequence[Sequence[dict[str, Any]]]) -> list[list[Any]]:
    """The same of the answers of a service."""
    return [[(one["text"], round(sum(one["logps"]), 4)) for one in answers] for answers in found]


def approximately(found: list[list[Any]], expected: list[list[Any]]) -> bool:
    """Whether answers have the same texts and, within rounding, the same log-probabilities."""
    if [[text for text, _ in one] for one in found] != [
        [text for text, _ in one] for one in expected
    ]:
        return False
    pairs = zip(chain(*found), chain(*expected), strict=True)
    return all(abs(one[1] - other[1]) < 1e-3 for one, other in pairs)


def process_state(pid: int) -> str | None:
    """The state of a process (Z for a zombie), or None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def is_gone(pid: int) -> bool:
    """Whether a process does not exist, not even as a zombie."""
    return process_state(pid) is None


def words(count: int) -> list[str]:
    """Different made-up words."""
    parts = [
        "re",
        "gard",
        "ten",
        "sion",
        "at",
        "mo",
        "del",
        "ing",
        "ap",
        "ple",
        "cat",
        "log",
        "ous",
    ]
    found = [f"{a}{b}{c}" for a in parts for b in parts for c in parts]
    return found[:: len(found) // count][:count]


def decoded(parts: Sequence[bytes]) -> list[Any]:
    """JSON answers as objects."""
    return [json.loads(part) for part in parts]
