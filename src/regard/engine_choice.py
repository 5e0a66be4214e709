"""The engines of decoding by name, and the choice among them.

"auto" takes the first engine that accepts the model and the decoding options. An explicit request
never falls back: the error names the part or option that the engine does not support.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from regard.decoding_engine import DecodingEngine, EngineRequest
from regard.errors import EngineError, choose
from regard.gpu_driver import runs_on_cpu
from regard.search.token_options import TokenOptions

if TYPE_CHECKING:
    from regard.inference.torch_engine import TorchEngine


@dataclass(frozen=True)
class EngineEntry:
    """An engine: `cannot` returns why it does not support a request, or None; `open` may also
    refuse, with an EngineError. An engine that is not `automatic` runs on explicit request only."""

    cannot: Callable[[EngineRequest], str | None]
    open: Callable[[EngineRequest], DecodingEngine]
    automatic: bool = True


REVERSED = "it generates targets from the beginning, and this model from the end"


def _native_cannot(request: EngineRequest) -> str | None:
    from regard.native.gate import cannot
    from regard.native.library import unavailable

    bundle = request.bundle
    if request.precision not in ("float32", "int8"):
        return f"it computes in float32 or int8, not {request.precision}"
    if bundle.template.reversed:
        return REVERSED
    if not bundle.is_stored:
        kind = type(bundle.model).__name__
        return f"it runs the weights in a bundle's folder; this {kind} is in memory"
    if not runs_on_cpu(bundle.device):
        return f"it runs on CPUs, not on device {bundle.device!r}"
    return cannot(bundle.raw_settings) or unavailable()


def _open_native(request: EngineRequest) -> DecodingEngine:
    from regard.native.native_engine import NativeEngine

    return NativeEngine(request)


def _torch_cannot(request: EngineRequest) -> str | None:
    if request.precision == "int8":
        return "it computes in float32 or bfloat16, not int8"
    return None


def _open_torch(request: EngineRequest) -> DecodingEngine:
    from regard.inference.torch_engine import TorchEngine

    return TorchEngine(request)


def _ctranslate2_cannot(request: EngineRequest) -> str | None:
    from regard.hub.ctranslate2_engine import cannot_run

    return REVERSED if request.bundle.template.reversed else cannot_run(request)


def _open_ctranslate2(request: EngineRequest) -> DecodingEngine:
    from regard.hub.ctranslate2_engine import CTranslate2Engine

    return CTranslate2Engine(request)


# In the order in which "auto" tries them.
DECODING_ENGINES: dict[str, EngineEntry] = {
    "native": EngineEntry(_native_cannot, _open_native),
    "torch": EngineEntry(_torch_cannot, _open_torch),
    "ctranslate2": EngineEntry(_ctranslate2_cannot, _open_ctranslate2, automatic=False),
}


class EngineSelector:
    """Selects an engine for each search and opens it once."""

    def __init__(self, requested: str, request: EngineRequest) -> None:
        if requested != "auto":
            choose({"auto": None, **DECODING_ENGINES}, requested, "engine")
        self.requested, self.request = requested, request
        self._opened: dict[str, DecodingEngine] = {}
        self._refusals: dict[str, str | None] = {}

    def select(self, options: TokenOptions, *, stream: bool = False) -> DecodingEngine:
        """The engine for a search; raises if the requested one cannot run it."""
        reasons: dict[str, str] = {}
        for name in self._candidates():
            reason = self._refusal(name)
            if reason is None:
                reason = self._opened[name].cannot(options, stream=stream)
            if reason is None:
                return self._opened[name]
            reasons[name] = reason
        raise self._error(reasons)

    def torch_engine(self, purpose: str) -> TorchEngine:
        """The torch engine, for what only it can do; raises if another one was requested."""
        if self.requested not in ("auto", "torch"):
            raise self._error({self.requested: f"it does not run {purpose}"})
        if reason := self._refusal("torch"):
            raise self._error({"torch": reason})
        engine: Any = self._opened["torch"]
        return engine

    def refusals(self) -> dict[str, str]:
        """The engines that were tried and do not run the model, and why."""
        return {name: reason for name, reason in self._refusals.items() if reason is not None}

    def _candidates(self) -> list[str]:
        if self.requested != "auto":
            return [self.requested]
        return [name for name, entry in DECODING_ENGINES.items() if entry.automatic]

    def _refusal(self, name: str) -> str | None:
        """Why an engine does not run the model; None after it was opened."""
        if name not in self._refusals:
            entry = DECODING_ENGINES[name]
            reason = entry.cannot(self.request)
            if reason is None:
                try:
                    self._opened[name] = entry.open(self.request)
                except EngineError as error:
                    reason = str(error)
            self._refusals[name] = reason
        return self._refusals[name]

    def _error(self, reasons: dict[str, str]) -> EngineError:
        parts = [f"engine {name!r} cannot run this: {why}" for name, why in reasons.items()]
        others = [name for name in ("auto", *DECODING_ENGINES) if name != self.requested]
        hint = "" if self.requested == "auto" else f"; use engine {' or '.join(map(repr, others))}"
        return EngineError("; ".join(parts) + hint)

    def __getstate__(self) -> dict[str, Any]:
        """Everything except open engines, which are opened again when they are needed."""
        return {**self.__dict__, "_opened": {}, "_refusals": {}}


def stored_precision(request: EngineRequest, engine: str) -> EngineRequest:
    """The request in the precision that the bundle is stored for (int8, or float32).

    Where the native engine cannot run an int8 bundle, "auto" runs it in float32 and warns.
    """
    precision = str(request.bundle.card.get("precision", "float32"))
    wanted = replace(request, precision=precision)
    if precision == "int8" and engine == "auto" and (reason := _native_cannot(wanted)):
        warnings.warn(f"float32 instead of int8: {reason}", stacklevel=2)
        return request
    return wanted
