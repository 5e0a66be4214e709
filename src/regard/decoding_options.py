"""Decoding options: names, defaults and help, defined once for the CLI, Python and explorer.

>>> DecodingOptions.of(beam=8, ban=["SH"], min_length=3)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

from regard.errors import RegardError, suggestion

DEFAULT_BEAM = 4
RATIO, EXTRA = 2.0, 20  # an output may have RATIO times the tokens of its source, and EXTRA more
SEARCH_ONLY = ("beam", "length_penalty", "require")
SAMPLING_ONLY = ("temperature", "top_k", "top_p", "min_p", "seed")


@dataclass(frozen=True)
class SearchOptions:
    """Options of greedy and beam search, and the constraints on every output."""

    beam: int | None = None
    """Beam size (1 = greedy). Default: 4, or the number of outputs if larger."""

    length_penalty: float | None = None
    """Length penalty α: score = log p / lengthᵅ. Default: 1 for running text, 0 for symbols."""

    min_length: int = 0
    """Minimum output length in tokens."""

    max_length: int | None = None
    """Maximum output length in tokens. The model's own limit still applies."""

    prefix: str = ""
    """Text that every output starts with."""

    ban: tuple[str, ...] = ()
    """Word that no output may contain (repeatable). Only its standard tokenization is banned."""

    require: tuple[str, ...] = ()
    """Word that every output must contain (repeatable). Needs beam search."""

    repetition_penalty: float = 1.0
    """Repetition penalty (> 1 discourages repeats)."""

    no_repeat_ngram: int = 0
    """Forbid repeating any n-gram of this many tokens (0 = off)."""

    source_language: str | None = None
    """Language of the inputs, by its code in a multilingual model."""

    target_language: str | None = None
    """Language of the outputs, by its code in a multilingual model."""

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Options from keyword arguments; a single word may stand for a list of one."""
        for name in options:
            if name not in (known := option_names(cls)):
                raise RegardError(f"unknown decoding option {name!r}; {suggestion(name, known)}")
        for name in {"ban", "require"} & options.keys():
            options[name] = _words(options[name])
        return cls(**options)


@dataclass(frozen=True)
class DecodingOptions(SearchOptions):
    """All decoding options: those of search, the number of outputs, and sampling."""

    n_best: int = 1
    """Number of outputs per input, best first (with sampling: number of samples)."""

    sample: bool = False
    """Sample outputs instead of searching for the best one."""

    temperature: float = 1.0
    """Sampling temperature (< 1 sharpens, > 1 flattens)."""

    top_k: int | None = None
    """Sample from the k most probable tokens only."""

    top_p: float = 1.0
    """Sample from the smallest set of tokens with this total probability."""

    min_p: float = 0.0
    """Sample only tokens with at least this fraction of the top token's probability."""

    seed: int = 1
    """Sampling seed. The same seed and input give the same output, whatever the batch."""

    @property
    def beam_size(self) -> int:
        """The beam size in use: the given one, or the default."""
        return max(DEFAULT_BEAM, self.n_best) if self.beam is None else self.beam

    def check(self) -> None:
        """Raise if a value is out of range or if two options contradict each other."""
        for name in ("n_best", "beam_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                option = name.removesuffix("_size")
                raise RegardError(f"{option} must be an integer of at least 1; got {value!r}")
        if not self.sample and self.beam_size < self.n_best:
            raise RegardError(
                f"a beam of {self.beam} cannot return {self.n_best} outputs; increase beam or "
                "lower n_best"
            )
        excluded = SEARCH_ONLY if self.sample else SAMPLING_ONLY
        for name in excluded:
            if getattr(self, name) != getattr(DecodingOptions, name):
                kind = "search" if self.sample else "sampling"
                way = "leave out sample" if self.sample else "set sample"
                raise RegardError(f"{name} applies to {kind} only; leave it out, or {way}")


def length_limit(length: int, max_length: int | None = None, ratio: float = RATIO) -> int:
    """The maximum output length of a source of `length` tokens (END included): ratio · length +
    EXTRA, at most `max_length`. Without a limit, an untrained model would never stop.
    """
    limit = math.ceil(ratio * length) + EXTRA
    return limit if max_length is None else min(max_length, limit)


def option_names(options: type[SearchOptions]) -> list[str]:
    """The names of all options of a class."""
    return [field.name for field in fields(options)]


def option_help(options: type[SearchOptions]) -> dict[str, str]:
    """The one-line description of each option: the docstring below its field."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for part in reversed(options.__mro__[:-1]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(body, ast.ClassDef)
        for line, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert isinstance(line.target, ast.Name)
                assert isinstance(below.value, ast.Constant)
                found[line.target.id] = inspect.cleandoc(str(below.value.value))
    return found


def _words(words: str | Iterable[str] | None) -> tuple[str, ...]:
    """Words as a tuple; a string is one word, not its letters."""
    return (words,) if isinstance(words, str) else tuple(words or ())
