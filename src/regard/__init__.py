"""Regard trains, runs and visualises attention-based sequence-to-sequence models."""

from __future__ import annotations

# `import regard` imports nothing: typing alone takes most of the time of an import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from regard.answer import Answer
    from regard.api import evaluate, train
    from regard.attention import (
        Attention,
        Cache,
        MultiHead,
        attend,
        causal,
        everything,
        prefix,
        window,
    )
    from regard.client import AsyncClient, Client
    from regard.confidence_calibration import calibrate
    from regard.decoding_options import DecodingOptions
    from regard.distillation import distill
    from regard.errors import RegardError, debug
    from regard.explore.offline_html import show
    from regard.loading import load
    from regard.model_export import export
    from regard.model_import import import_model
    from regard.pipeline import Pipeline
    from regard.quantization import quantize
    from regard.ragged import Ragged
    from regard.trace.record import record
    from regard.trace.trace import Trace
    from regard.training.callbacks import Callback
    from regard.training.evaluation import Metric

__version__ = "0.2.0"  # the only place; pyproject.toml reads it

__all__ = [
    "Answer",
    "AsyncClient",
    "Attention",
    "Cache",
    "Callback",
    "Client",
    "DecodingOptions",
    "Metric",
    "MultiHead",
    "Pipeline",
    "Ragged",
    "RegardError",
    "Trace",
    "attend",
    "calibrate",
    "causal",
    "debug",
    "distill",
    "evaluate",
    "everything",
    "export",
    "import_model",
    "load",
    "prefix",
    "quantize",
    "record",
    "show",
    "train",
    "window",
]

_HOMES = {
    "errors": ("RegardError", "debug"),
    "ragged": ("Ragged",),
    "trace": ("Trace", "record"),
    "explore.offline_html": ("show",),
    "answer": ("Answer",),
    "client": ("AsyncClient", "Client"),
    "api": ("evaluate", "train"),
    "confidence_calibration": ("calibrate",),
    "training.callbacks": ("Callback",),
    "training.evaluation": ("Metric",),
    "decoding_options": ("DecodingOptions",),
    "distillation": ("distill",),
    "model_export": ("export",),
    "model_import": ("import_model",),
    "quantization": ("quantize",),
    "loading": ("load",),
    "pipeline": ("Pipeline",),
    "attention": (
        "Attention",
        "Cache",
        "MultiHead",
        "attend",
        "causal",
        "everything",
        "prefix",
        "window",
    ),
}
_MODULES = (
    "attention",
    "bulk",
    "bundle",
    "explore",
    "kernels",
    "models",
    "plots",
    "pooling",
    "positions",
    "reports",
    "search",
    "seeds",
    "text",
    "trace",
    "training",
    "pipeline",
    "vectors",
)


def __getattr__(name: str) -> Any:
    """Import a public name on first access: `regard --help` must not wait seconds for torch."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"regard.{home}"), name)
    if name in _MODULES:
        return import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
