"""Models: the bundles that are offered, told from their files at once and loaded when first needed."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError, suggestion
from regard.explore.refusals import Refusal, unknown
from regard.explore.requests import TOKENS
from regard.pretrained import MODELS

if TYPE_CHECKING:
    from regard.pipeline import Pipeline

QUEUE = 8  # computations of one model: one runs, the others wait
FAMILIES = {"transformer": "Transformer", "recurrent": "recurrent"}
METRICS = {  # of a card: what people call them, and their unit
    "ser": ("symbol error", "%"),
    "wer": ("wrong answers", "%"),
    "exact": ("right answers", "%"),
    "bleu": ("BLEU", ""),
    "chrf": ("chrF", ""),
}


class Offered:
    """One bundle: what its files say of it, and its pipeline when it is needed."""

    def __init__(self, folder: Path, *, shipped: bool = False) -> None:
        self.folder, self.shipped = folder, shipped
        config, card, manifest = (_read(folder, name) for name in ("config.json", "card.json", "manifest.json"))
        try:
            self.settings, self.sizes = dict(config["model"]), dict(config["vocabulary"])
            self.sha8 = str(manifest["files"]["weights.safetensors"]["sha256"])[:8]
            self.family = str(self.settings["kind"])
        except (KeyError, TypeError, ValueError):
            raise RegardError(f"{str(folder)!r} is no whole bundle: parts of it are missing; copy it again") from None
        self.card = card
        self.name = folder.parent.name if folder.name == "bundle" else folder.name
        self.id = f"{self.name}@{self.sha8}"
        self._lock, self._count, self._waiting = threading.Lock(), threading.Lock(), 0

    @cached_property
    def pipeline(self) -> Pipeline:
        """The model, ready to answer. Ask for it inside `turn`."""
        from regard.loading import load

        try:
            return load(self.folder, device="cpu", long="allow")
        except RegardError as error:
            raise Refusal(500, "bundle-damaged", str(error)) from None

    @property
    def ready(self) -> Pipeline:
        """The pipeline for who only reads it and need not wait; loaded if it is not yet."""
        if "pipeline" not in self.__dict__:
            with self.turn():
                pass
        return self.pipeline

    @contextmanager
    def turn(self) -> Iterator[Pipeline]:
        """The pipeline, for one computation at a time; raises when too many wait already."""
        with self._count:
            if self._waiting >= QUEUE:
                raise Refusal(429, "busy", f"{QUEUE} computations wait already; try again", {"retry-after": "1"})
            self._waiting += 1
        try:
            with self._lock:
                yield self.pipeline
        finally:
            with self._count:
                self._waiting -= 1

    @cached_property
    def entry(self) -> dict[str, Any]:
        """What the list of models says of it."""
        settings, card = self.settings, self.card
        recurrent = self.family == "recurrent"
        return {
            "id": self.id,
            "name": self.name,
            "sha8": self.sha8,
            "title": card.get("title") or f"{self.name} ({FAMILIES.get(self.family, self.family)})",
            "family": self.family,
            "shipped": self.shipped,
            "task": card.get("task", "text"),
            "parameters": _parameters(self.folder / "weights.safetensors"),
            "position": None if recurrent else settings.get("position"),
            "layers": {"encoder": settings.get("encoder"), "decoder": settings.get("decoder")},
            "heads": int(settings.get("attention") != "none") if recurrent else settings.get("heads"),
            "width": settings.get("width"),
            "quality": _quality(card),
            "example": card.get("example", ""),
            "limit": TOKENS,
        }


class Models:
    """All that are offered, by their ids: NAME@SHA8, so that a link leads to the same weights or to none."""

    def __init__(self, offered: Sequence[Offered]) -> None:
        self.by_id = {one.entry["id"]: one for one in offered}  # a damaged one is found now, not later

    @classmethod
    def of(cls, folders: Sequence[Path] = ()) -> Models:
        """Those in the given folders, or those that come with the package."""
        if folders:
            return cls([Offered(_home(folder)) for folder in folders])
        found = sorted(path.parent for path in MODELS.glob("*/manifest.json"))
        if not found:
            raise RegardError("no model came with this installation; give a bundle: regard explore runs/demo/bundle")
        return cls([Offered(folder, shipped=True) for folder in found])

    def __getitem__(self, id: str) -> Offered:
        if id not in self.by_id:
            raise unknown("unknown-model", f"unknown model {id[:80]!r}; {suggestion(id, self.by_id)}")
        return self.by_id[id]

    def __iter__(self) -> Iterator[Offered]:
        return iter(self.by_id.values())


def _home(folder: Path) -> Path:
    """The folder of a bundle, or one line on what is wrong with it."""
    home = folder.resolve()
    if not home.is_dir():
        raise RegardError(f"there is no bundle {str(folder)!r}; give the folder that `regard train` wrote")
    inner = folder / "bundle"
    if not (home / "manifest.json").exists():
        if (inner / "manifest.json").is_file():
            raise RegardError(f"{str(folder)!r} is the folder of a run; its bundle is {str(inner)!r}")
        raise RegardError(
            f"{str(folder)!r} is no bundle: it has no manifest.json; give the folder `regard train` wrote"
        )
    return home


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RegardError(f"cannot read {str(path)!r}: {error.strerror}; copy the bundle again") from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise RegardError(f"{str(path)!r} is no whole JSON; copy the bundle again")
    return values


def _parameters(path: Path) -> int:
    """How many numbers a file of weights holds, by its header."""
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, MemoryError, OverflowError):
        raise Refusal(
            500, "bundle-damaged", f"{str(path)!r} is no whole safetensors file; copy the bundle again"
        ) from None


def _quality(card: dict[str, Any]) -> list[dict[str, Any]]:
    """How good the model was found to be: as the card says it, or by its metrics."""
    if isinstance(card.get("quality"), list):
        return list(card["quality"])
    metrics, asked = card.get("metrics", {}), card.get("held_out")
    on = f"{asked:,} held-out questions" if isinstance(asked, int) else "held-out questions"
    known = [(name, *METRICS[name]) for name in METRICS if isinstance(metrics.get(name), int | float)]
    return [{"metric": title, "value": round(metrics[name], 2), "unit": unit, "on": on} for name, title, unit in known]
