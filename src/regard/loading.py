"""Load a pipeline from bundles: in Python with `regard.load`, in a command with `load_pipeline`."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.bundle.bundle import Bundle, read
from regard.bundle.location import locate
from regard.bundle.manifest import MANIFEST
from regard.errors import RegardError, choose
from regard.model_limits import MAX_MEMBERS
from regard.model_location import find_model
from regard.pipeline import Pipeline
from regard.registry import import_files

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]
NOT_OF_AN_ENSEMBLE = {"calibration", "precision", "quantization"}  # facts of a member's card
DEVICES = {"auto": 0, "cpu": 0, "cuda": 0}


def load(
    folder: PathLike | Sequence[PathLike],
    *,
    device: str | torch.device = "auto",
    long: str = "warn",
    precision: str | None = None,
    engine: str = "auto",
    max_source_length: int | None = None,
    imports: PathLike | Iterable[PathLike] = (),
    source_language: str | None = None,
    target_language: str | None = None,
) -> Pipeline:
    """Load the pipeline of a bundle, a run, an ensemble or an included model; several of them form
    an ensemble.

    `long` handles sources longer than any in training: warn, refuse or allow. Those of more than
    `max_source_length` tokens are rejected (default: ten times the longest in training, at least
    1,000; 0: no limit). `precision` is that
    of search (default: that of the bundle, float32 or int8): bfloat16 is faster on a GPU, but
    near-ties may resolve differently, even between batches; int8 runs on the native engine.
    `engine` is auto, native (C++ on a CPU, without torch) or torch. `imports` are Python files that
    register user-defined parts of the model. `source_language` and `target_language` are the codes
    that a multilingual model uses by default.
    """
    import_files(imports)
    given = [folder] if isinstance(folder, str | os.PathLike) else folder
    folders = [find_model(one) for one in given]
    languages = source_language, target_language
    bundles = [read(one, str(device)).with_languages(*languages) for one in folders]
    how: dict[str, Any] = {"long": long, "precision": precision, "engine": engine}
    return Pipeline(_ensemble(bundles), max_source_length=max_source_length, **how)


def load_pipeline(
    folder: PathLike | Sequence[PathLike],
    *,
    device: str = "auto",
    long: str = "warn",
    precision: str | None = None,
    engine: str = "auto",
    max_source_length: int | None = None,
) -> Pipeline:
    """Load the pipeline of a command: a bundle or an ensemble, on a device of the commands."""
    choose(DEVICES, device.split(":")[0], "device")
    how: dict[str, Any] = {"long": long, "precision": precision, "engine": engine}
    pipeline = load(folder, device=device, max_source_length=max_source_length, **how)
    gc.freeze()  # the model lives until the process ends: spare the garbage collector its objects
    return pipeline


def fingerprint(folder: Path) -> str:
    """The identity of a bundle: the sha256 of its manifest, which lists those of all its files."""
    return hashlib.sha256((locate(folder) / MANIFEST).read_bytes()).hexdigest()


def _ensemble(bundles: Sequence[Bundle]) -> Bundle:
    """One bundle whose model is the ensemble of all; its card is the first one's. Models that
    generate targets reversed are its reversed members, unless all do."""
    kinds = len({(one.source.fingerprint, one.target.fingerprint) for one in bundles})
    if kinds != 1:
        raise RegardError(
            "an ensemble needs models with the same tokenizers; "
            f"these {len(bundles)} models have {kinds} different ones"
        )
    if len({replace(one.template, reversed=False) for one in bundles}) != 1:
        raise RegardError("an ensemble needs models with the same special tokens (templates)")
    if len(bundles) == 1:
        return bundles[0]
    first = next((one for one in bundles if not one.template.reversed), bundles[0])
    from regard.ensemble_settings import SIDES, EnsembleSettings
    from regard.models import Ensemble

    models: dict[str, list[Any]] = {side: [] for side in SIDES}
    settings: dict[str, list[Any]] = {side: [] for side in SIDES}
    for one in bundles:  # the members of an ensemble count like the others
        own, model = one.settings, one.model
        mirrored = one.template.reversed != first.template.reversed
        if not isinstance(own, EnsembleSettings) or not isinstance(model, Ensemble):
            side = SIDES[mirrored]
            models[side].append(model)
            settings[side].append(own)
            continue
        for side, place in zip(SIDES, reversed(SIDES) if mirrored else SIDES, strict=True):
            models[place] += getattr(model, side)
            settings[place] += getattr(own, side)
    if (count := sum(map(len, models.values()))) > MAX_MEMBERS:
        raise RegardError(f"an ensemble has at most {MAX_MEMBERS} members; got {count}")
    card = {name: fact for name, fact in first.card.items() if name not in NOT_OF_AN_ENSEMBLE}
    joined = EnsembleSettings(**{side: tuple(some) for side, some in settings.items()})
    parts = first.source, first.target, joined, card
    model = Ensemble(*models.values())
    return Bundle(model, *parts, first.training_sources, template=first.template)
