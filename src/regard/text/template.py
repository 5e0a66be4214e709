"""Template: the special tokens around a text, as a model expects them.

The encoder reads `source_prefix`, the source and `source_suffix`. The decoder is given `start` and
generates tokens up to `end`. Most models differ only here: BART starts with its end token, T5 and
Marian with their padding token, NLLB with its end token and the token of the target language.

>>> Template()                                                   # Regard's own: 0, 1 and 2
>>> Template(end=1, start=(0,), source_suffix=(1,), banned=(0,))  # T5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from regard.errors import RegardError, suggestion

MAX_TOKENS = 64  # of each part; `banned` may have more
MAX_BANNED = 1 << 16
MAX_ID = 1 << 31


class TemplateError(RegardError):
    """A template that is not valid, or does not fit a vocabulary or a language."""


@dataclass(frozen=True)
class Template:
    """The ids of special tokens and where they occur.

    `unknown`, `end`, `start` and `banned` are ids of the target vocabulary, `source_prefix` and
    `source_suffix` of the source vocabulary. Tokens in `start` are given: their log-probabilities
    do not count, and they are not part of an output. Tokens in `banned` are never generated; the
    log-probabilities of other tokens stay as they are. With `reversed`, the decoder generates a
    target from its last token to its first; ids outside the model keep the order of the text.
    """

    unknown: int = 0
    end: int = 2
    start: tuple[int, ...] = (1,)
    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = (2,)
    banned: tuple[int, ...] = ()
    languages: Mapping[str, int] = field(default_factory=dict, hash=False)
    reversed: bool = False

    def __post_init__(self) -> None:
        _check_types({part.name: getattr(self, part.name) for part in fields(self)})
        if not self.start:
            raise TemplateError("start of a template is empty; give the decoder's first token")
        if self.end in self.banned:
            raise TemplateError(f"a template cannot ban its end token {self.end}; remove it")

    @property
    def source_tokens(self) -> int:
        """How many tokens the template adds to a source."""
        return len(self.source_prefix) + len(self.source_suffix)

    def source(self, ids: Sequence[int]) -> list[int]:
        """What the encoder reads for a source."""
        return [*self.source_prefix, *ids, *self.source_suffix]

    def decoder_input(self, ids: Sequence[int]) -> list[int]:
        """What the decoder reads for a target: the start tokens and the target."""
        return [*self.start, *self.in_order(ids)]

    def labels(self, ids: Sequence[int]) -> list[int]:
        """What the decoder predicts for a target, from the last start token on."""
        return [*self.in_order(ids), self.end]

    def in_order(self, ids: Sequence[int]) -> Sequence[int]:
        """A target in the order in which the decoder generates it, or such tokens in the order of
        the text."""
        return ids[::-1] if self.reversed else ids

    @property
    def language_slots(self) -> tuple[bool, bool]:
        """Whether a source language and a target language can be chosen.

        Where only the source side has a language token, it names the target language, as in the
        multilingual models of OPUS-MT.
        """
        known = set(self.languages.values())
        source = not known.isdisjoint((*self.source_prefix, *self.source_suffix))
        target = not known.isdisjoint(self.start)
        return source and target, source or target

    def for_languages(self, source: str | None = None, target: str | None = None) -> Template:
        """The template with the language tokens replaced; None keeps the one it has."""
        if source is None and target is None:
            return self
        slots = self.language_slots
        for side, code, slot in zip(("source", "target"), (source, target), slots, strict=True):
            if code is None:
                continue
            if not slot:
                raise TemplateError(
                    f"this model has no token for the {side} language; leave out {side}_language"
                )
            if code not in self.languages:
                known = ", ".join(self.languages)
                raise TemplateError(f"unknown {side} language {code!r}; choose from {known}")
        before = source if slots[0] else target
        return replace(
            self,
            source_prefix=self._in_language(self.source_prefix, before),
            source_suffix=self._in_language(self.source_suffix, before),
            start=self._in_language(self.start, target),
        )

    def check_sizes(self, source: int, target: int) -> None:
        """Raise if an id is outside the vocabulary of its side."""
        sides = {
            "unknown": ((self.unknown,), target),
            "end": ((self.end,), target),
            "start": (self.start, target),
            "banned": (self.banned, target),
            "source_prefix": (self.source_prefix, source),
            "source_suffix": (self.source_suffix, source),
            "languages": (tuple(self.languages.values()), max(source, target)),
        }
        for name, (ids, size) in sides.items():
            if ids and max(ids) >= size:
                raise TemplateError(
                    f"{name} of the template has id {max(ids):,}, outside the vocabulary of "
                    f"{size:,}; use ids up to {size - 1:,}"
                )
        if target - len(set(self.banned)) < 2:
            raise TemplateError("the template bans every token except the end; ban fewer")

    def to_json(self) -> dict[str, Any]:
        """Plain values, as stored in the config of a bundle."""
        values = asdict(self)
        return {name: list(one) if isinstance(one, tuple) else one for name, one in values.items()}

    @classmethod
    def from_json(cls, values: Any) -> Template:
        """Read what `to_json` returned; fields that are left out have their defaults."""
        if not isinstance(values, dict):
            raise TemplateError("the template is not a JSON object")
        known = [part.name for part in fields(cls)]
        for name in values:
            if name not in known:
                raise TemplateError(f"unknown template field {name!r}; {suggestion(name, known)}")
        _check_types(values)
        made: dict[str, Any] = {
            name: tuple(one) if isinstance(one, list) else one for name, one in values.items()
        }
        return cls(**made)

    def _in_language(self, ids: tuple[int, ...], code: str | None) -> tuple[int, ...]:
        if code is None:
            return ids
        known = set(self.languages.values())
        return tuple(self.languages[code] if id in known else id for id in ids)


def _check_types(values: Mapping[str, Any]) -> None:
    """Raise unless each field has ids of the right form."""
    for name, value in values.items():
        if name == "languages":
            _check_languages(value)
        elif name == "reversed":
            if not isinstance(value, bool):
                raise TemplateError(f"reversed must be true or false; got {value!r:.80}")
        elif name in ("unknown", "end"):
            _check_id(name, value)
        else:
            _check_ids(name, value)


def _check_languages(languages: Any) -> None:
    if not isinstance(languages, Mapping) or len(languages) > MAX_BANNED:
        raise TemplateError("languages of a template must be an object of codes and ids")
    for code, id in languages.items():
        if not isinstance(code, str) or not code:
            raise TemplateError(f"a language code must be a non-empty string; got {code!r}")
        _check_id(f"language {code!r}", id)


def _check_ids(name: str, ids: Any) -> None:
    most = MAX_BANNED if name == "banned" else MAX_TOKENS
    if not isinstance(ids, tuple | list):
        raise TemplateError(f"{name} of a template must be a list of ids; got {ids!r:.80}")
    if len(ids) > most:
        raise TemplateError(f"{name} of a template has {len(ids):,} ids; at most {most:,} fit")
    for id in ids:
        _check_id(name, id)


def _check_id(name: str, id: Any) -> None:
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < MAX_ID:
        raise TemplateError(f"{name} of a template must be a token id; got {id!r:.80}")


DEFAULT_TEMPLATE = Template()
