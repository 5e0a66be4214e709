"""CheckpointConfig: the values of config.json and generation_config.json, checked as they are read.

Values that a file leaves out have the default of their family in `transformers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.hub.checkpoint_folder import (
    CONFIG,
    GENERATION,
    MAX_CONFIG_BYTES,
    CheckpointFolder,
    HuggingFaceError,
)

MAX_WIDTH, MAX_LAYERS = 1 << 16, 1 << 9
MAX_VOCABULARY, MAX_POSITIONS = 1 << 22, 1 << 17


class CheckpointConfig:
    """The configuration of a Hugging Face model; an error names the value and its file."""

    def __init__(
        self, folder: CheckpointFolder, model: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> None:
        self.folder = folder
        self._model, self._generation = model, generation
        self._defaults: Mapping[str, Any] = {}

    @classmethod
    def read(cls, folder: CheckpointFolder) -> CheckpointConfig:
        """Read both files; only the first must exist."""
        model = folder.read_json(CONFIG, MAX_CONFIG_BYTES)
        if model is None:
            raise folder.error(f"it has no {CONFIG}", "pass the folder of a Hugging Face model")
        return cls(folder, model, folder.read_json(GENERATION, MAX_CONFIG_BYTES) or {})

    def with_defaults(self, defaults: Mapping[str, Any]) -> CheckpointConfig:
        """The same values with the defaults of a family."""
        made = CheckpointConfig(self.folder, self._model, self._generation)
        made._defaults = defaults
        return made

    def get(self, name: str) -> Any:
        """A value of the model's configuration, unchecked; None if it is not set."""
        return self._model.get(name, self._defaults.get(name))

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer within limits."""
        return self._integer(name, self.get(name), low, high)

    def _integer(self, name: str, value: Any, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(name, f"must be an integer from {low:,} to {high:,}", value)
        return value

    def width(self, name: str) -> int:
        """A width or a number of heads."""
        return self.integer(name, 1, MAX_WIDTH)

    def flag(self, name: str) -> bool:
        """True or False."""
        value = self.get(name)
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false", value)
        return value

    def number(self, name: str, low: float, high: float) -> float:
        """A number within limits."""
        value = self.get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise self.error(name, f"must be a number from {low:g} to {high:g}", value)
        return float(value)

    def choice(self, name: str, known: Mapping[str, str]) -> str:
        """The value that belongs to a known word."""
        value = self.get(name)
        if not isinstance(value, str) or value not in known:
            raise self.error(name, f"must be one of {', '.join(map(repr, known))}", value)
        return known[value]

    def token(self, name: str, size: int, *, optional: bool = False) -> int | None:
        """The id of a special token; that of generation_config.json comes first."""
        value = self._token_value(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value is None and optional:
            return None
        if isinstance(value, list) and value:
            raise self.folder.error(
                f"{name} lists {len(value)} tokens", f"choose one of them in {GENERATION}"
            )
        return self._integer(name, value, 0, size - 1)

    def single_tokens(self, size: int) -> tuple[int, ...]:
        """The tokens that are never generated: `suppress_tokens` and bad words of one token."""
        words = self._token_value("bad_words_ids") or []
        single = [word[0] for word in words if isinstance(word, list) and len(word) == 1]
        listed = [*single, *(self._token_value("suppress_tokens") or [])]
        return tuple(sorted({self._integer("bad_words_ids", id, 0, size - 1) for id in listed}))

    def long_bad_words(self) -> int:
        """The number of bad words of several tokens."""
        words = self._token_value("bad_words_ids") or []
        return sum(isinstance(word, list) and len(word) > 1 for word in words)

    def generation(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain values of the recommended decoding options that are set."""
        found = {name: self._token_value(name) for name in names}
        return {name: one for name, one in found.items() if isinstance(one, bool | int | float)}

    def _token_value(self, name: str) -> Any:
        value = self._generation.get(name)
        return self.get(name) if value is None else value

    def error(self, name: str, rule: str, value: Any) -> HuggingFaceError:
        """The error for a value."""
        return self.folder.error(f"{name} in {CONFIG} {rule}; got {value!r:.80}")
