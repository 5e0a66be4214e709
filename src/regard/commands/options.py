"""What people may ask of an answer. The command line reads its options, their defaults and their help from here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

DASH = "\0"  # stands for "-" while words are told from options, which "-" would be taken for; nobody can type it


@dataclass(frozen=True)
class Form:
    """How answers are written."""

    scores: bool = False
    """Score before each answer: SCORE⇥ANSWER. What it was ranked by; log-probability unless --length divides it."""

    n_best: int = 1
    """So many answers for each line, the best first (with --sample as they were drawn): LINE⇥SCORE⇥ANSWER, LINE being
    the number of the input line."""

    alignments: bool = False
    """Where each answer token looked, after the answer: ANSWER⇥0-0 1-1 3-2, source-answer in tokens from 0; a token
    that looked at the end most has no link."""

    json: bool = False
    """JSON lines instead: source, text, tokens, logps (and the end's), logp, score; with --n-best alternatives, with
    --alignments the whole matrix (answer tokens and the end × source_tokens and the end)."""


@dataclass(frozen=True)
class Search:
    """How answers are found, and what they must keep to."""

    beam: int | None = None
    """Beginnings kept side by side; 1 is greedy search. Default: 4, or as many as there are answers to give."""

    length: float | None = None
    """α of the length penalty: score = log p / lengthᵅ. Default: 1 for running text, 0 for symbols."""

    shortest: int = 0
    """The fewest tokens an answer may have."""

    longest: int | None = None
    """An answer has at most so many tokens; never more than the model's own limit, which is by the source's length and
    what the model has seen."""

    prefix: str | None = None
    """What every answer begins with."""

    ban: list[str] | None = None
    """A word that no answer may hold (repeatable). Its usual spelling in pieces is banned: with bpe, another
    spelling of it could pass."""

    require: list[str] | None = None
    """A word that every answer must hold (repeatable); needs a beam."""

    repetition: float = 1.0
    """Above 1: what was said once becomes that many times as improbable."""

    no_repeat: int = 0
    """No sequence of so many tokens is said twice."""

    precision: str = "float32"
    """float32, or bfloat16: faster on a GPU, but a few answers in a thousand come out otherwise, and close calls may
    then fall otherwise in another batch."""


@dataclass(frozen=True)
class Draw:
    """Answers drawn by chance instead of searched for."""

    sample: bool = False
    """Draw the answer by its probability; with --n-best, so many draws, without those that came twice."""

    temperature: float = 1.0
    """Below 1 the likely becomes likelier, above 1 all becomes alike."""

    top_k: int | None = None
    """Draw among so many of the likeliest tokens."""

    top_p: float = 1.0
    """Draw among the fewest tokens that together have this probability."""

    min_p: float = 0.0
    """Draw among tokens at least so many times as likely as the likeliest."""

    seed: int = 1
    """The same seed draws the same answers, whatever the other lines are."""


def dashed(app: object, commands: object, arguments: Iterable[Any]) -> None:
    """Dashes as they were typed, be they texts or paths; the parser calls this before it makes values of its tokens."""
    for argument in arguments:
        argument.tokens = [token.evolve(value="-") if token.value == DASH else token for token in argument.tokens]
