"""Service: answers requests for several models with worker processes.

>>> service = Service([ModelSpec("spelling", folder)], workers=2)
>>> await service.start()
>>> await service.generate("spelling", ["attention"], {"beam": 4})
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from regard.serve.service_types import (
    ModelInfo,
    ModelSpec,
    NoEvents,
    ServiceEvents,
    ServiceLimits,
)

__all__ = ["ModelInfo", "ModelSpec", "NoEvents", "Service", "ServiceEvents", "ServiceLimits"]


class Service:
    """Models by name, each with a queue and a pool of workers. All methods belong to the event
    loop that called `start`."""

    def __init__(
        self,
        models: Sequence[ModelSpec],
        *,
        workers: int | None = None,
        limits: ServiceLimits | None = None,
        events: ServiceEvents | None = None,
    ) -> None:
        self.limits = limits or ServiceLimits()
        self.events: ServiceEvents = events or NoEvents()
        self.models: Mapping[str, ModelInfo] = {}

    @property
    def ready(self) -> bool:
        """Whether every model can answer and new requests are accepted."""
        raise NotImplementedError

    async def start(self) -> None:
        """Start all workers; returns when every model can answer."""
        raise NotImplementedError

    async def generate(
        self,
        model: str,
        texts: Sequence[str],
        options: Mapping[str, Any],
        *,
        alignment: bool = False,
        deadline: float | None = None,
    ) -> list[list[dict[str, Any]]]:
        """The answers to each text, best first, as JSON objects: text, tokens, logps, logp, score,
        confidence, unknown and, on request, alignment."""
        raise NotImplementedError

    async def generate_json(
        self,
        model: str,
        texts: Sequence[str],
        options: Mapping[str, Any],
        *,
        alignment: bool = False,
        deadline: float | None = None,
    ) -> list[bytes]:
        """The same, each list of answers as JSON in UTF-8: fast, because nothing is decoded."""
        raise NotImplementedError

    def stream(
        self,
        model: str,
        text: str,
        options: Mapping[str, Any],
        *,
        deadline: float | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """{"piece": str} for each new part of the text, then {"answer": …} as in `generate`."""
        raise NotImplementedError

    async def reload(self, model: str) -> None:
        """Load the bundle again. If it is broken, raises `LoadFailed` and keeps the old one."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Refuse new requests, finish the accepted ones and stop all workers."""
        raise NotImplementedError
