"""The data that the service exchanges with the HTTP server: limits, models and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class ServiceLimits:
    """What the service accepts and how it forms batches."""

    queue_texts: int = 8_192
    """Texts that may wait per model; more are rejected with status 429."""

    batch_tokens: int = 2_048
    """Token budget of a batch, by an estimate from characters."""

    batch_wait: float = 0.002
    """Seconds to wait for a batch to fill while other workers are busy."""

    deadline: float = 30.0
    """Seconds that a request may take; a request may ask for less."""

    texts_per_request: int = 1_024
    """Texts that one request may have."""

    characters_per_text: int = 10_000
    """Characters that one text may have."""

    beam: int = 32
    """Largest beam and number of outputs that a request may ask for."""


@dataclass(frozen=True)
class ModelSpec:
    """A model to serve: its name, its bundle, whether it runs in int8, and on which engine."""

    name: str
    folder: Path
    int8: bool = False
    engine: str = "auto"


@dataclass(frozen=True)
class ModelInfo:
    """A model that is served. `loaded` is the time of loading in seconds since 1970, `card` has
    the facts of its model card, `languages` the codes of a multilingual model."""

    name: str
    fingerprint: str
    loaded: float
    engine: str
    device: str
    card: Mapping[str, Any] = field(default_factory=dict)
    languages: Sequence[str] = ()


class ServiceEvents(Protocol):
    """Receives what happens in the service, for metrics and logs. Calls must be fast."""

    def queued(self, model: str, texts: int) -> None:
        """Texts were accepted."""

    def started(self, model: str, texts: int, tokens: int, waited: float) -> None:
        """A batch went to a worker; its longest-waiting text waited so many seconds."""

    def finished(self, model: str, texts: int, tokens: int, seconds: float) -> None:
        """A worker returned a batch; `tokens` are those of the outputs."""

    def rejected(self, model: str, reason: str) -> None:
        """A request was not answered; the reason is the code of its error, or "cancelled"."""

    def worker_started(self, model: str, pid: int) -> None:
        """A worker can answer."""

    def worker_died(self, model: str, pid: int, status: int) -> None:
        """A worker ended without being stopped; `status` as in `subprocess` (−9: SIGKILL)."""


class NoEvents:
    """Ignores all events."""

    def queued(self, model: str, texts: int) -> None:
        """Ignore it."""

    def started(self, model: str, texts: int, tokens: int, waited: float) -> None:
        """Ignore it."""

    def finished(self, model: str, texts: int, tokens: int, seconds: float) -> None:
        """Ignore it."""

    def rejected(self, model: str, reason: str) -> None:
        """Ignore it."""

    def worker_started(self, model: str, pid: int) -> None:
        """Ignore it."""

    def worker_died(self, model: str, pid: int, status: int) -> None:
        """Ignore it."""
