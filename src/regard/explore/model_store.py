"""The served models: described from their files at once, loaded when first needed."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.bundle.bundle import Bundle, read
from regard.bundle.film_files import find_film
from regard.bundle.manifest import WEIGHTS, read_manifest
from regard.bundle.weights_header import read_header
from regard.errors import RegardError, no_bundle, suggestion
from regard.explore.messages import MAX_TOKENS, not_found
from regard.pretrained import MODELS, included_models
from regard.teacher_forcing import refuse_reversed
from regard.text.input_alphabet import describe_input, vocabulary_text
from regard.web.access import HttpError

if TYPE_CHECKING:
    from regard.explore.film_store import ReducedFilm, SnapshotFilm
    from regard.pipeline import Pipeline

HELLO = "Hello, world!"  # the example of an imported model
QUEUE = 32  # computations per model, including the running one: those of a class
FAMILIES = {"transformer": "Transformer", "recurrent": "recurrent"}
METRICS = {  # of a card: name and unit on the page
    "phone_error_rate": ("phone error rate", "%"),
    "character_error_rate": ("character error rate", "%"),
    "symbol_error_rate": ("symbol error rate", "%"),
    "token_error_rate": ("token error rate", "%"),
    "sequence_error_rate": ("sequence error rate", "%"),
    "sequence_accuracy": ("sequence accuracy", "%"),
    "bleu": ("BLEU", ""),
    "chrf": ("chrF", ""),
}


class ServedModel:
    """A bundle: its description, and its pipeline once it is needed."""

    def __init__(self, folder: Path, *, included: bool = False) -> None:
        self.folder = folder
        self.included = included
        bundle = read(folder)  # verifies every file
        if bundle.raw_settings.get("kind") == "ensemble":
            raise RegardError(
                f"{str(folder)!r} is an ensemble, and the explorer shows one model; open one of "
                "its seeds, such as RUN/seed-1"
            )
        refuse_reversed(bundle.template, "the pages of the explorer")
        self.card, self.settings = bundle.card, dict(bundle.raw_settings)
        self.examples = _examples(bundle)
        self.input = _input(bundle)
        self.vocabulary_sizes = {"source": len(bundle.source), "target": len(bundle.target)}
        manifest = read_manifest(folder)
        self.sha8 = str(manifest[WEIGHTS]["sha256"])[:8]
        self.tokenizers = _tokenizer_hash(manifest)
        self.family = str(self.settings.get("kind"))
        self._check_model(bundle)
        self.name = _model_name(folder, self.card)
        self.id = f"{self.name}@{self.sha8}"
        self._lock = threading.Lock()
        self._queue_lock = threading.Lock()
        self._queued = 0

    def _check_model(self, bundle: Bundle) -> None:
        """Raise unless the weights are those of the settings.

        The native engine compares them without torch; torch reports what that engine refuses.
        """
        from regard.loading import load
        from regard.native.gate import cannot
        from regard.native.library import unavailable

        if cannot(bundle.raw_settings) or unavailable():
            bundle.model  # noqa: B018 (built now, so that a damaged file is reported)
        else:
            load(self.folder, device="cpu", long="allow")

    @cached_property
    def pipeline(self) -> Pipeline:
        """The loaded model. Use it inside `exclusive`."""
        from regard.loading import load

        try:
            return load(self.folder, device="cpu", long="allow")
        except RegardError as error:
            raise HttpError(500, "bundle-damaged", str(error)) from None

    @property
    def loaded_pipeline(self) -> Pipeline:
        """The pipeline for reading only, without waiting for a running computation."""
        if "pipeline" not in self.__dict__:
            with self.exclusive():
                pass
        return self.pipeline

    def token_label(self, id: int) -> str:
        """The text of a token of the target vocabulary."""
        return self.loaded_pipeline.bundle.target.label(id)

    @cached_property
    def film(self) -> SnapshotFilm | ReducedFilm:
        """The training film; raises if there is none or if it is damaged."""
        from regard.explore.film_store import open_film

        return open_film(self)

    @contextmanager
    def exclusive(self) -> Iterator[Pipeline]:
        """The pipeline for one computation at a time; raises if the queue is full."""
        with self._queue_lock:
            if self._queued >= QUEUE:
                message = f"{QUEUE} computations are already queued; try again"
                raise HttpError(429, "busy", message, {"retry-after": "1"})
            self._queued += 1
        try:
            with self._lock:
                yield self.pipeline
        finally:
            with self._queue_lock:
                self._queued -= 1

    @cached_property
    def entry(self) -> dict[str, Any]:
        """The entry in the list of models."""
        settings, card = self.settings, self.card
        recurrent = self.family == "recurrent"
        return {
            "id": self.id,
            "name": self.name,
            "sha8": self.sha8,
            "title": card.get("title") or f"{self.name} ({FAMILIES.get(self.family, self.family)})",
            "family": self.family,
            "tokenizers": self.tokenizers,
            "included": self.included,
            "task": "text" if card.get("task", "text") == "text" else "symbols",
            "parameters": _count_parameters(self.folder / "weights.safetensors"),
            "position": None if recurrent else _part_name(settings.get("position")),
            "layers": {
                "encoder": settings.get("encoder_layers"),
                "decoder": settings.get("decoder_layers"),
            },
            "heads": _count_heads(settings),
            "width": settings.get("width"),
            "quality": _quality(card),
            "example": self.examples[0],
            "examples": self.examples,
            "input": self.input,
            "max_tokens": MAX_TOKENS,
            "film": find_film(self.folder) is not None,
        }


class ModelStore:
    """All served models by id. An id is NAME@SHA8, so a link opens the same weights or none."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.by_id = {model.entry["id"]: model for model in models}  # finds damaged bundles now

    @classmethod
    def open(cls, folders: Sequence[Path] = ()) -> ModelStore:
        """The models in these folders; without folders, the included ones."""
        if folders:
            found = [_bundle_folder(folder) for folder in folders]
            own = MODELS.resolve()
            return cls([ServedModel(folder, included=folder.parent == own) for folder in found])
        included = sorted(path.parent for path in MODELS.glob("*/manifest.json"))
        if not included:
            message = "this installation has no models; pass one: regard explore runs/demo/bundle"
            raise RegardError(message)
        return cls([ServedModel(folder, included=True) for folder in included])

    def __getitem__(self, id: str) -> ServedModel:
        if id not in self.by_id:
            near = suggestion(id, self.by_id)
            raise not_found("unknown-model", f"unknown model {id[:80]!r}; {near}")
        return self.by_id[id]

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self.by_id.values())


def _bundle_folder(folder: Path) -> Path:
    """The resolved folder of a bundle, or an error with the fix."""
    home = folder.resolve()
    if home.suffix.lower() == ".zip" and home.is_file():
        from regard.bundle import locate  # imports torch

        return locate(home)
    if not home.is_dir():
        raise RegardError(no_bundle(folder, included=included_models()))
    if not (home / "manifest.json").exists():
        if (home / "bundle/manifest.json").is_file():  # the folder of a run
            return home / "bundle"
        raise RegardError(no_bundle(folder, "not a bundle: it has no manifest.json"))
    return home


def _examples(bundle: Bundle) -> list[str]:
    """Texts to open the model on: those of its card, or else one made of its vocabulary."""
    card = bundle.card
    samples = [sample[0] for sample in card.get("samples", []) if sample]
    example = card.get("example") or (HELLO if "import" in card else "")
    first = [example] if example else []
    found = dict.fromkeys([*first, *(card.get("examples") or samples)])
    return [text for text in found if text.strip()] or [vocabulary_text(bundle.source)]


def _input(bundle: Bundle) -> dict[str, Any]:
    """Alphabet and case of both sides: those of the card, or else those of the vocabularies."""
    declared = bundle.card.get("input", {})
    sides = {"source": bundle.source, "target": bundle.target}
    return {name: declared.get(name) or describe_input(one) for name, one in sides.items()}


def _tokenizer_hash(manifest: Mapping[str, Mapping[str, Any]]) -> str:
    """A hash of the tokenizers: models with the same one read and write the same tokens."""
    files = sorted(name for name in manifest if name.endswith("tokenizer.json"))
    text = " ".join(f"{name} {manifest[name]['sha256']}" for name in files)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _model_name(folder: Path, card: dict[str, Any]) -> str:
    """The name of a model in addresses: that of its folder, its run, or the imported model."""
    if "import" in card and card.get("title"):
        return re.sub(r"[^\w.-]+", "-", str(card["title"]))[:60].strip("-.") or folder.name
    return folder.parent.name if folder.name == "bundle" else folder.name


def _part_name(setting: Any) -> str | None:
    """The name of a part that is given as a name or as {kind, options}."""
    return setting.get("kind") if isinstance(setting, dict) else setting


def _count_heads(settings: dict[str, Any]) -> int | None:
    """The heads of each attention; a recurrent model has one or none."""
    if settings["kind"] == "recurrent":
        return int(settings.get("attention") != "none")
    return settings.get("heads")


def _count_parameters(path: Path) -> int:
    """The number of parameters in a safetensors file, from its header."""
    return sum(math.prod(tensor.shape) for tensor in read_header(path).tensors.values())


def _quality(card: dict[str, Any]) -> list[dict[str, Any]]:
    """The measured quality: the card's own list, or its metrics."""
    if isinstance(card.get("quality"), list):
        return list(card["quality"])
    metrics, count = card.get("metrics", {}), card.get("held_out")
    on = f"{count:,} held-out examples" if isinstance(count, int) else "held-out examples"
    return [
        {"metric": title, "value": round(metrics[name], 2), "unit": unit, "on": on}
        for name, (title, unit) in METRICS.items()
        if isinstance(metrics.get(name), int | float)
    ]
