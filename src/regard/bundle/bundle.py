"""Bundle: a trained model with its tokenizers, settings and card. Reading one needs no torch.

>>> bundle = read("runs/demo/bundle")
>>> bundle.target.decode([5, 3]), bundle.card["task"]
>>> bundle.model                      # imports torch and builds the model
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from regard.bundle.card_fields import check_card
from regard.bundle.location import locate
from regard.bundle.manifest import (
    CARD,
    CONFIG,
    SHARED,
    SOURCE,
    TARGET,
    TRAINING_SOURCES,
    WEIGHTS,
    BundleError,
    invalid_file,
    read_json,
    read_manifest,
    unreadable_file,
    verify_file,
)
from regard.errors import RegardError
from regard.model_limits import MAX_VOCABULARY
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from regard.bundle.training_sources import TrainingSources
    from regard.config import RecurrentSettings, TransformerSettings
    from regard.ensemble_settings import EnsembleSettings
    from regard.models import Model

    FamilySettings = RecurrentSettings | TransformerSettings | EnsembleSettings

VERSION = 2  # version 1 has no template: its ids are those of the default one
_BUILDING = Lock()  # one model is built at a time


class Bundle:
    """A model, its tokenizers, settings and card. With a shared vocabulary `source is target`.

    `template` has the special tokens around a source and a target. `folder` is where it was read
    from, if it was. The model, the settings and the training sources of a folder are loaded when
    they are first used.
    """

    def __init__(
        self,
        model: Model | None,
        source: Tokenizer,
        target: Tokenizer,
        settings: FamilySettings | Mapping[str, Any],
        card: dict[str, Any],
        training_sources: TrainingSources | None = None,
        folder: Path | None = None,
        *,
        device: str = "cpu",
        template: Template = DEFAULT_TEMPLATE,
    ) -> None:
        template.check_sizes(len(source), len(target))
        self.source, self.target, self.template = source, target, template
        self.card, self.folder = card, folder
        self.device = device  # of a model that is built from the folder
        self._model, self._settings, self._training_sources = model, settings, training_sources
        self._version: Any = None  # that of the model when it was built from the folder
        self._stamp = self._read_stamp() if model is None else None

    @property
    def weights(self) -> Path | None:
        """The file of weights; None for a model that exists in memory only."""
        return None if self.folder is None else self.folder / WEIGHTS

    @property
    def model(self) -> Model:
        """The torch model; built from the folder on first use."""
        with _BUILDING:
            if self._model is None:
                from regard.bundle.model_files import load_model
                from regard.models.model_version import ModelVersion

                if self._read_stamp() != self._stamp:
                    what = f"{str(self.weights)!r} was replaced after it was loaded"
                    raise BundleError(f"{what}; load the bundle again")
                self._model = load_model(self)
                self._version = ModelVersion(self._model)
            return self._model

    @property
    def is_stored(self) -> bool:
        """Whether the model is that of the folder: not built yet, or not changed since."""
        if self._model is None:
            return True
        return self._version is not None and self._version.is_current(self._model)

    def mark_changed(self) -> None:
        """Note a change of the model's weights that cannot be detected."""
        self._model, self._version = self.model, None

    def with_model(self, model: Model, folder: Path | None = None) -> Bundle:
        """The same bundle with another model, in memory."""
        parts = (self.source, self.target, self._settings, self.card, self.training_sources)
        return Bundle(model, *parts, folder, template=self.template)

    def with_card(self, card: dict[str, Any]) -> Bundle:
        """The same model, in memory, with another card."""
        parts = (self.source, self.target, self._settings, card, self.training_sources)
        return Bundle(self.model, *parts, template=self.template)

    def with_languages(self, source: str | None, target: str | None) -> Bundle:
        """The same bundle for these languages of a multilingual model; None keeps its own."""
        if source is None and target is None:
            return self
        changed = copy(self)
        changed.template = self.template.for_languages(source, target)
        return changed

    def _read_stamp(self) -> tuple[int, int, int] | None:
        """Identifies the file of weights without reading it."""
        if self.weights is None:
            return None
        try:
            found = self.weights.stat()
        except OSError as error:
            raise unreadable_file(self.weights, error) from None
        return found.st_ino, found.st_size, found.st_mtime_ns

    @property
    def settings(self) -> FamilySettings:
        """The settings of the model, validated on first use."""
        if not isinstance(self._settings, Mapping):
            return self._settings
        from regard.ensemble_settings import parse_model

        try:
            self._settings = parsed = parse_model(dict(self._settings))
        except (RegardError, TypeError) as error:
            assert self.folder
            raise invalid_file(self.folder / CONFIG, str(error)) from None
        return parsed

    @property
    def raw_settings(self) -> Mapping[str, Any]:
        """The settings of the model as plain values, as stored in the folder."""
        if isinstance(self._settings, Mapping):
            return self._settings
        return self._settings.model_dump(mode="json")

    @property
    def training_sources(self) -> TrainingSources | None:
        """Hashes of the sources that the model was trained on, if they are known."""
        if self._training_sources is None and self.folder is not None:
            path = self.folder / TRAINING_SOURCES
            if os.path.lexists(path):
                from regard.bundle.training_sources import TrainingSources

                self._training_sources = TrainingSources.load(path)
        return self._training_sources

    def __getstate__(self) -> dict[str, Any]:
        """Everything; versions hold object identities, so an unchanged model is read again."""
        stored = self.folder is not None and self.is_stored
        return {**self.__dict__, "_version": None, "_model": None if stored else self._model}


def read(folder: str | os.PathLike[str], device: str = "cpu") -> Bundle:
    """Read and verify a bundle without building its model; an error names the damaged file."""
    home = locate(Path(folder))
    files = read_manifest(home)
    verify_file(home, CONFIG, files)
    settings, sizes, shared, template = _read_config(home)
    names = [SHARED] if shared else [SOURCE, TARGET]
    optional = [TRAINING_SOURCES] if TRAINING_SOURCES in files else []
    for name in (WEIGHTS, CARD, *names, *optional):
        verify_file(home, name, files)
    try:
        tokenizers = [Tokenizer.load(home / name) for name in names]
    except RegardError as error:
        raise BundleError(str(error)) from None
    for index, (name, size) in enumerate(zip(names, sizes, strict=False)):
        try:
            tokenizers[index] = tokenizers[index].with_size(size)
        except RegardError:
            reason = f"it has {len(tokenizers[index]):,} ids, but {CONFIG} says {size:,}"
            raise invalid_file(home / name, reason) from None
    source, target = tokenizers[0], tokenizers[-1]
    card = read_json(home / CARD)
    try:
        check_card(card)
    except RegardError as error:
        raise invalid_file(home / CARD, str(error)) from None
    parts = source, target, settings, card
    return Bundle(None, *parts, folder=home, device=device, template=template)


def _read_config(home: Path) -> tuple[dict[str, Any], tuple[int, int], bool, Template]:
    """Settings, vocabulary sizes, whether the vocabulary is shared, and the template."""
    values = read_json(home / CONFIG)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BundleError(
            f"{str(home / CONFIG)!r} has format version {version}, newer than the supported "
            f"{VERSION}; upgrade with pip install -U regard"
        )
    try:
        if version not in (1, VERSION) or isinstance(version, bool):
            raise RegardError(f"its version is {version!r:.40}, not 1 or {VERSION}")
        if not isinstance(values["model"], dict):
            raise RegardError("its model settings are not a JSON object")
        sizes = values["vocabulary"]["source"], values["vocabulary"]["target"]
        if not all(type(size) is int and 0 < size <= MAX_VOCABULARY for size in sizes):
            raise RegardError(f"its vocabulary sizes are {sizes}")
        if not isinstance(values["shared"], bool):
            raise RegardError(f"its 'shared' is {values['shared']!r:.40}, not true or false")
        if values["shared"] and sizes[0] != sizes[1]:
            raise RegardError(f"its shared vocabulary has two sizes, {sizes}")
        template = DEFAULT_TEMPLATE if version == 1 else Template.from_json(values["template"])
        template.check_sizes(*sizes)
        return values["model"], sizes, bool(values["shared"]), template
    except (RegardError, KeyError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise invalid_file(home / CONFIG, reason) from None
