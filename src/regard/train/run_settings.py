"""Began: what a run wrote down when it began. It goes on with that, wherever it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.config import PRESETS, ModelSettings, TextSettings, TrainSettings, parse
from regard.errors import RegardError
from regard.train import state_file as notes
from regard.train.auto_settings import Plan, plan
from regard.train.distributed import World
from regard.train.memory_probe import fitted
from regard.train.prepare import Prepared

UNSEEN = {"checkpoint_seconds", "capture"}  # settings that may change between one part of a run and the next
NOTED = {"name", "model", "train", "text", "decisions"}
Asked = tuple[str, str, dict[str, Any], TrainSettings]  # the family, the size, settings of the model, of training


def decided(path: Path, asked: Asked, text: TextSettings, data: Prepared, here: World) -> Plan:
    """The plan of a run, from `path` if it is there; else made for this machine, and written down."""
    began = here.agreed(notes.read(path, NOTED))
    if began is not None:
        found = again(began, *asked)
    else:
        found = plan(*asked, data, here)
        if asked[3].batch_tokens is None and here.device.type == "cuda":
            found = fitted(found, data, here)
    if here.first:
        _same(path, began, found, text, given(asked))
    return found


def given(asked: Asked) -> dict[str, dict[str, Any]]:
    """What was asked for by name, and not left to us."""
    named: dict[str, dict[str, Any]] = {
        "model": asked[2],
        "train": {
            name: value
            for name, value in asked[3].model_dump(exclude_unset=True, exclude=UNSEEN).items()
            if value is not None
        },
    }
    return json.loads(json.dumps(named))


def again(began: dict[str, Any], family: str, size: str, overrides: dict[str, Any], train: TrainSettings) -> Plan:
    """The plan that a run began with, wherever it goes on, and what is asked for now over it."""
    was = began["model"] if began["model"]["kind"] == family else {}
    sizes = {} if size == "auto" or began["name"] == f"{family} {size}" else PRESETS[family][size]
    model = parse(ModelSettings, {"kind": family, **was, **sizes, **overrides}, "model")
    given = {name: value for name, value in train.model_dump().items() if value is not None}
    if train.precision == began.get("asked", {}).get("train", {}).get("precision", "auto"):
        del given["precision"]  # it was resolved for the device that the run began on
    return Plan(began["name"], model, parse(TrainSettings, {**began["train"], **given}, "train"), began["decisions"])


def _same(
    path: Path, was: dict[str, Any] | None, found: Plan, text: TextSettings, asked: dict[str, dict[str, Any]]
) -> None:
    """Write the plan down. The settings of a run may not change under it; what differs is named."""
    train = found.train.model_dump(exclude=UNSEEN)
    now = json.loads(json.dumps({"model": found.model.model_dump(), "train": train, "text": text.model_dump()}))
    if was is None:
        notes.write(path, {**now, "name": found.name, "decisions": found.decisions, "asked": asked})
        return
    changed = [
        f"{group}.{name} was {was[group].get(name)!r} and is {now[group].get(name)!r}"
        for group in now
        for name in {**was[group], **now[group]}
        if was[group].get(name) != now[group].get(name)
    ]
    changed += [
        f"{group}.{name} was {value!r} and is not given"
        for group, values in was.get("asked", {}).items()
        for name, value in values.items()
        if name not in asked[group] and was[group].get(name) == now[group].get(name)
    ]
    if changed:
        raise RegardError(
            f"this run began with other settings: {'; '.join(changed)}. Use the old ones, or another --out"
        )
