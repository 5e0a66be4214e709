"""Stage 4 of a run, plan: resolved settings, stored on the first start and compared on resume."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.config import ModelSettings, TrainSettings, parse
from regard.device import resolve_precision
from regard.errors import RegardError
from regard.models import FAMILIES, build
from regard.text import Batch, Batches
from regard.training.auto_settings import (
    DataFacts,
    RequestedSettings,
    ResolvedSettings,
    resolve_settings,
)
from regard.training.checkpoint import read_state, write_state
from regard.training.cpu_speed import measure_training_speed
from regard.training.dataset import Dataset
from regard.training.distributed import World
from regard.training.objective import Objective

MAY_CHANGE = {"checkpoint_seconds", "cuda_graphs", "film"}  # settings that may differ on resume
LENGTHS = ("minutes", "steps", "epochs")
STATE_KEYS = {"name", "model", "train", "text", "decisions", "requested"}
MEMORY_SHARE = 0.4  # of a GPU for one step: a captured one uses it twice, and search needs some
MIN_BATCH_TOKENS = 512


def plan(
    dataset: Dataset,
    requested: RequestedSettings,
    world: World,
    path: Path,
    *,
    extend: bool = False,
) -> ResolvedSettings:
    """The settings of a run: those stored in `path` on resume, or chosen for this machine.

    With `extend`, a requested length replaces the stored one (see `store_length`).
    """
    stored = world.broadcast(read_state(path, STATE_KEYS))
    given = _given(requested)
    extended = stored is not None and extend and _new_length(given, stored)
    if stored is not None and extended:
        stored = without_length(stored)
    if stored is not None:
        settings = replace(_restore(stored, requested), extended=extended)
    else:
        settings = resolve_settings(
            requested, dataset, world, _cpu_speed(requested, dataset, world)
        )
        if requested.train.batch_tokens is None and world.device.type == "cuda":
            settings = fit_batch_tokens(settings, dataset, world)
    if world.first:
        _store_or_compare(path, stored, settings, given)
    return settings


def _cpu_speed(requested: RequestedSettings, dataset: Dataset, world: World) -> float | None:
    """Tokens/s of a mini model, if the size of the model depends on it."""
    data = DataFacts.of(dataset, world, requested.train)
    if data.gpu or data.minutes is None or requested.size != "auto" or requested.fine_tuning:
        return None
    if replace(data, speed=math.inf).choose_size() == "tiny":
        return None  # at any speed
    measured = measure_training_speed(requested, dataset) if world.first else 0.0
    return float(world.broadcast(measured))


def _new_length(given: dict[str, dict[str, Any]], stored: dict[str, Any]) -> bool:
    """Whether a length is given that differs from the stored one."""
    return any(
        given["train"][name] != stored["train"].get(name)
        for name in LENGTHS
        if name in given["train"]
    )


def without_length(stored: dict[str, Any]) -> dict[str, Any]:
    """The stored settings without minutes, steps and epochs."""

    def drop(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in LENGTHS}

    requested = {**stored["requested"], "train": drop(stored["requested"]["train"])}
    return {**stored, "train": drop(stored["train"]), "requested": requested}


def store_length(path: Path, settings: ResolvedSettings) -> None:
    """Store the new length of a run that was extended."""
    stored = read_state(path, STATE_KEYS)
    assert stored is not None
    length = {name: getattr(settings.train, name) for name in LENGTHS}
    stored = without_length(stored)
    stored["train"] |= length
    stored["requested"]["train"] |= {n: value for n, value in length.items() if value is not None}
    write_state(path, stored)


def _given(requested: RequestedSettings) -> dict[str, dict[str, Any]]:
    """The settings that the user set explicitly."""
    train = requested.train.model_dump(exclude_unset=True, exclude=MAY_CHANGE)
    given = {name: value for name, value in train.items() if value is not None}
    values: dict[str, dict[str, Any]] = {"model": requested.model, "train": given}
    return json.loads(json.dumps(values))


def _restore(stored: dict[str, Any], requested: RequestedSettings) -> ResolvedSettings:
    """The stored settings, overridden by what is requested now."""
    family, size = requested.family, requested.size
    values = {"kind": family, **(stored["model"] if stored["model"]["kind"] == family else {})}
    if size != "auto" and stored["name"] != f"{family} {size}":
        values |= FAMILIES[family].presets[size]
    model = parse(ModelSettings, {**values, **requested.model}, "model")
    train = requested.train.model_dump()
    given = {name: value for name, value in train.items() if value is not None}
    if given["precision"] == stored["requested"]["train"].get("precision", "auto"):
        del given["precision"]  # it was resolved for the device of the first start
    settings = parse(TrainSettings, {**stored["train"], **given}, "train")
    name, decisions = stored["name"], stored["decisions"]
    return ResolvedSettings(name, model, settings, requested.text, decisions)


def _store_or_compare(
    path: Path,
    stored: dict[str, Any] | None,
    settings: ResolvedSettings,
    given: dict[str, dict[str, Any]],
) -> None:
    """Store the settings, or raise if they differ from those that the run began with."""
    groups = {
        "model": settings.model.model_dump(),
        "train": settings.train.model_dump(exclude=MAY_CHANGE),
        "text": settings.text.model_dump(),
    }
    now = json.loads(json.dumps(groups))
    if stored is None:
        about = {"name": settings.name, "decisions": settings.decisions, "requested": given}
        write_state(path, {**now, **about})
        return
    stored = {**stored, **_with_defaults(stored, settings)}
    ignored = LENGTHS if settings.extended else ()
    changed = [
        f"{group}.{name} was {stored[group].get(name)!r} and is {now[group].get(name)!r}"
        for group in now
        for name in {**stored[group], **now[group]}
        if name not in ignored and stored[group].get(name) != now[group].get(name)
    ]
    changed += [
        f"{group}.{name} was {value!r} and is not given"
        for group, values in stored["requested"].items()
        for name, value in values.items()
        if name not in given[group] and stored[group].get(name) == now[group].get(name)
    ]
    if changed:
        lengths = any(f"train.{name} was" in change for change in changed for name in LENGTHS)
        extend = "--extend to continue with a new length, " if lengths else ""
        raise RegardError(
            f"this run began with other settings: {'; '.join(changed)}. Use the old ones, "
            f"{extend}--restart to start over, or another --out"
        )


def _with_defaults(stored: dict[str, Any], settings: ResolvedSettings) -> dict[str, dict[str, Any]]:
    """The stored groups with the defaults of settings that are newer than the run."""
    groups = {"model": settings.model, "train": settings.train, "text": settings.text}
    return {
        group: {
            **{
                name: field.default
                for name, field in type(values).model_fields.items()
                if not (group == "train" and name in MAY_CHANGE)
            },
            **stored[group],
        }
        for group, values in groups.items()
    }


def fit_batch_tokens(
    settings: ResolvedSettings, dataset: Dataset, world: World
) -> ResolvedSettings:
    """The settings with as many tokens per step as fit in the GPU's memory, found by trying."""
    train, held_out = settings.train, dataset.held_out
    model = build(settings.model, len(held_out.source), len(held_out.target)).to(world.device)
    losses = {"label_smoothing": train.label_smoothing, "rdrop": train.rdrop or 0.0}
    objective = Objective(model, **losses, template=held_out.template)
    bfloat16 = resolve_precision(train.precision, world.device)[0] == "bfloat16"

    def peak_memory(batch_tokens: int) -> int:
        torch.cuda.reset_peak_memory_stats(world.device)
        for batch in largest_batches(dataset.batches(train, batch_tokens)):
            with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
                loss = objective(batch.to(world.device))  # noqa: F821 (deleted below)
            loss.backward()
        return torch.cuda.max_memory_allocated(world.device)

    memory = torch.cuda.get_device_properties(world.device).total_memory
    fitting = largest_fitting(settings.batch_tokens, peak_memory, memory)
    del model, objective
    torch.cuda.empty_cache()
    fitting = int(world.broadcast(fitting))
    if fitting == settings.batch_tokens:
        return settings
    reason = f"batches of {fitting:,} tokens: {settings.batch_tokens:,} do not fit in GPU memory"
    return settings.updated(reason, batch_tokens=fitting)


def largest_fitting(batch_tokens: int, peak_memory: Callable[[int], int], memory: int) -> int:
    """`batch_tokens`, halved until a step's peak memory (bytes) leaves enough of `memory`."""
    while batch_tokens > MIN_BATCH_TOKENS:
        try:
            if peak_memory(batch_tokens) <= MEMORY_SHARE * memory:
                break
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        batch_tokens = max(MIN_BATCH_TOKENS, batch_tokens // 2)
    return batch_tokens


def largest_batches(batches: Batches) -> list[Batch]:
    """The batch with the most pairs, and the one with the longest."""
    steps = batches.plan(0)
    last = [steps.batch(step)[-1] for step in range(len(steps))]
    longest = (batches.pairs.source_lengths + batches.pairs.target_lengths)[last]
    return [batches.at(0, int(step)) for step in {longest.argmin(), longest.argmax()}]
