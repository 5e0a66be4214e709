"""Pipeline: text in, text out. Shared by the command line, the server and the explorer.

>>> t = regard.load("runs/demo/bundle")
>>> print(t("attention"))                  # AH T EH N SH AH N
>>> print(t("attention", beam=8, ban=["SH"]))
>>> t.best("attention", n=5)               # the five best, each with its log-probabilities
>>> for answer in t.many(open("words")): print(answer)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from regard import bundle
from regard.answer import Answer, empty_answer
from regard.decoding_options import DecodingOptions, SearchOptions
from regard.errors import RegardError, choose
from regard.inference import ModelCache, search_all
from regard.models import Model, is_finite
from regard.ragged import Ragged
from regard.search import Beam, BeamSearch, Hypothesis, Search, SearchResult, constraints
from regard.search.build import build_search
from regard.search.greedy import Greedy
from regard.search.search_batches import RATIO, length_limits
from regard.teacher_forcing import alignment as alignment_of
from regard.teacher_forcing import attention_maps, next_logps, target_logps
from regard.text import UNKNOWN, with_end

FIRST_LINES = 64  # searched together at first, so that the first answers arrive at once
MOST_LINES = 8_192
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LONG = ("warn", "refuse", "allow")


class Pipeline:
    """A model with its tokenizers, from source text to answers.

    Decoding options are keyword arguments, as listed in `regard.DecodingOptions`.
    """

    def __init__(
        self, loaded: bundle.Bundle, *, long: str = "warn", precision: str = "float32"
    ) -> None:
        if long not in LONG:
            raise RegardError(f"long must be warn, refuse or allow; got {long!r}")
        self.bundle, self.long = loaded, long
        self.precision = choose(PRECISIONS, precision, "precision")
        self.model, self.device = loaded.model, next(loaded.model.parameters()).device
        longest = loaded.card.get("longest", {})
        self.longest_source: int | None = longest.get("source")
        self.max_length = None if "target" not in longest else 2 * longest["target"] + 10
        ratio = longest.get("ratio", RATIO)
        self.length_limits: dict[str, Any] = {"max_length": self.max_length, "ratio": ratio}
        self._model_cache = ModelCache(self.precision)
        default_search = self.search()
        assert isinstance(default_search, Beam)
        self.default_search = default_search

    @property
    def inference_model(self) -> Model:
        """The fast copy of the model that search runs.

        Built on first use and again whenever the model changes. Scores and attention weights are
        computed by the model itself.
        """
        return self._model_cache.of(self.model)

    def refresh_weights(self) -> None:
        """Rebuild the inference model after a write through `.data`; other changes are detected."""
        self._model_cache.clear()

    def search(self, options: SearchOptions | None = None, /, **keywords: Any) -> Search:
        """Build a search from decoding options, given as an object or as keyword arguments."""
        if options is not None and keywords:
            raise RegardError(f"give decoding options or keywords, not both; got {keywords}")
        if options is None:
            options = DecodingOptions.of(**keywords)
        elif not isinstance(options, DecodingOptions):
            options = DecodingOptions(**vars(options))
        default_penalty = float(self.bundle.card.get("task") == "text")
        return build_search(options, self.bundle.target, length_penalty=default_penalty)

    def __call__(
        self,
        text: str,
        search: Search | None = None,
        *,
        alignment: bool = False,
        weights: bool = False,
        **options: Any,
    ) -> Answer:
        """The best answer to one text."""
        (answer,) = self.many([text], search, alignment=alignment, weights=weights, **options)
        return answer

    def many(
        self,
        lines: Iterable[str],
        search: Search | None = None,
        *,
        alignment: bool = False,
        weights: bool = False,
        **options: Any,
    ) -> Iterator[Answer]:
        """The best answer to each line, in order; at most a few thousand lines are in memory."""
        for answers in self.answers(lines, search, **options):
            best = answers[0]
            if alignment or weights:
                best = self.with_attention(best, alignment=alignment, weights=weights)
            yield best

    def answers(
        self,
        lines: Iterable[str],
        search: Search | None = None,
        *,
        first: int = FIRST_LINES,
        **options: Any,
    ) -> Iterator[list[Answer]]:
        """All answers that search returns for each line, best first and without duplicate texts.

        The `first` lines are searched together, then twice as many, and so on up to MOST_LINES.
        """
        if isinstance(lines, str):
            raise RegardError(
                f"lines must be a list or a file of texts; for one text give [{_short(lines)}]"
            )
        if search is not None and options:
            raise RegardError(f"give a search or decoding options, not both; got {options}")
        chosen = search or (self.search(**options) if options else self.default_search)
        lines, count = iter(lines), first
        while window := [_text(line).rstrip("\r\n") for line in islice(lines, count)]:
            yield from self._answer_lines(window, chosen)
            count = min(2 * count, MOST_LINES)

    def best(self, text: str, n: int = 5, **options: Any) -> list[Answer]:
        """The n best answers of a beam search; fewer where the beam finds fewer."""
        return next(self.answers([text], n_best=n, **options))[:n]

    def sample(self, text: str, n: int = 1, **options: Any) -> list[Answer]:
        """n sampled answers; duplicates stay."""
        search = self.search(sample=True, n_best=n, **options)
        if not (ids := self._encode(text)):
            return [empty_answer(text) for _ in range(n)]
        (found,) = self._search([(text, ids)], search)
        return [self._answer(text, ids, hypothesis) for hypothesis in found.hypotheses]

    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """The answer piece by piece, each as soon as all remaining hypotheses share it."""
        search = self.search(**options)
        if not isinstance(search, Beam | Greedy):
            raise RegardError("stream runs greedy or beam search; leave out sample")
        if not (ids := self._encode(text)):
            return
        source = with_end(Ragged.of([torch.tensor(ids)])).to(self.device)
        # A beam of 1 without a length penalty is greedy search.
        beam = search if isinstance(search, Beam) else Beam(1, constraints=search.constraints)
        limit = length_limits(source.lengths, **self.length_limits)
        beams = BeamSearch(beam, self.inference_model, source, limit)
        shown = ""
        for _ in beams:
            # An incomplete character decodes to �, which the next token may replace.
            certain = self.bundle.target.decode(beams.committed_prefix()).rstrip("�")
            yield certain[len(shown) :]
            shown = certain
        found = beams.results()[0].hypotheses
        if not found:
            raise _no_output(text)
        yield self.bundle.target.decode(found[0].ids)[len(shown) :]

    def score(self, source: str, target: str) -> Answer:
        """A given target as an answer, with the model's log-probability of each of its tokens."""
        (answer,) = self.scores([(source, target)])
        return answer

    def scores(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Answer]:
        """Score many (source, target) pairs, in order, some at a time."""
        pairs = iter(pairs)
        while window := list(islice(pairs, FIRST_LINES)):
            if alone := next((pair for pair in window if isinstance(pair, str)), None):
                raise RegardError(f"expected a pair of texts, source and target; got {alone!r}")
            yield from self._score_pairs(window)

    def align(self, source: str, target: str | None = None) -> Answer:
        """An answer with its alignment: of a given target, or of the model's own best answer."""
        answer = self(source) if target is None else self.score(source, target)
        return self.with_attention(answer, alignment=True)

    def alternatives(self, text: str, position: int, n: int = 5) -> list[Answer]:
        """The best answers that differ from the best one at `position` (from 0).

        One answer for each of the n most probable tokens there; `logps[position]` is the token's.
        The token may be the end.
        """
        best = self(text)
        if n < 1:
            raise RegardError(f"n must be at least 1; got {n}")
        if not 0 <= position <= len(best.ids):
            last = f"{len(best.ids)} (the end)"
            raise RegardError(f"{best.text!r} has positions 0 to {last}; got {position}")
        if not (ids := self._ids(text)):
            return [best]
        logps = next_logps(self.model, ids, best.ids[:position])
        found: list[Hypothesis] = []
        for token in logps.topk(min(n, len(logps))).indices.tolist():
            prefix = constraints.prefix([*best.ids[:position], token])
            search = replace(self.default_search, constraints=(prefix,))
            found += self._run(search, [ids])[0].hypotheses[:1]  # none beyond the length limit
        return [self._answer(text, ids, hypothesis) for hypothesis in found]

    def with_attention(
        self, answer: Answer, *, alignment: bool = False, weights: bool = False
    ) -> Answer:
        """The answer with its alignment or all attention weights, from one teacher-forced pass."""
        maps = attention_maps(self.model, self._ids(answer.source), answer.ids)
        aligned = alignment_of(self.model, maps) if alignment else None
        return replace(answer, alignment=aligned, weights=maps if weights else None)

    def _answer_lines(self, lines: Sequence[str], search: Search) -> Iterator[list[Answer]]:
        """Answers to some lines; an empty line has an empty answer, without running the model."""
        encoded = [self._encode(line) for line in lines]
        asked = [(line, ids) for line, ids in zip(lines, encoded, strict=True) if ids]
        found = iter(self._search(asked, search))
        for line, ids in zip(lines, encoded, strict=True):
            if not ids:
                yield [empty_answer(line)]
                continue
            answers: dict[str, Answer] = {}
            for hypothesis in next(found).hypotheses:
                answer = self._answer(line, ids, hypothesis)
                answers.setdefault(answer.text, answer)
            yield list(answers.values())

    def _score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Answer]:
        sources = [self._encode(source) for source, _ in pairs]
        targets = [self.bundle.target.encode(_text(target).strip()) for _, target in pairs]
        logps = target_logps(self.model, sources, targets)
        for (line, _), source, target, row in zip(pairs, sources, targets, logps, strict=True):
            yield self._answer(line, source, Hypothesis(target, row, sum(row)))

    def _search(self, asked: Sequence[tuple[str, list[int]]], search: Search) -> list[SearchResult]:
        """The hypotheses for some texts; NaN and a text without any raise."""
        found = self._run(search, [ids for _, ids in asked])
        for (line, _), one in zip(asked, found, strict=True):
            not_a_number = any(item.score != item.score for item in one.hypotheses)
            if not_a_number or not (one.hypotheses or is_finite(self.model)):
                raise RegardError("the model's outputs are not finite (NaN); it cannot be used")
            if not one.hypotheses:
                raise _no_output(line)
        return found

    def _run(self, search: Search, sources: Sequence[list[int]]) -> list[SearchResult]:
        model = self.inference_model
        return search_all(search, model, sources, **self.length_limits, device=self.device)

    def _ids(self, line: str) -> list[int]:
        """The token ids of a source, without surrounding white space, as in training."""
        return self.bundle.source.encode(_text(line).strip())

    def _encode(self, line: str) -> list[int]:
        """The token ids of a source, after the check of its length."""
        ids, longest = self._ids(line), self.longest_source
        if longest is not None and len(ids) > longest and self.long != "allow":
            what = f"{_short(line)} has {len(ids):,} tokens, more than any training source"
            if self.long == "refuse":
                raise RegardError(f"{what} ({longest:,}); shorten it, or set long to allow")
            warnings.warn(f"{what} ({longest:,}); the answer may be poor", stacklevel=2)
        return ids

    def _answer(self, source: str, ids: Sequence[int], found: Hypothesis) -> Answer:
        target = self.bundle.target
        tokens = [target.label(id) for id in found.ids]
        unknown = self.bundle.source.unknown_symbols(source.strip()) if UNKNOWN in ids else []
        text = target.decode(found.ids)
        return Answer(source, text, found.ids, tokens, found.logps, found.score, unknown)


def _no_output(line: str) -> RegardError:
    return RegardError(
        f"no output for {_short(line)} satisfies all constraints within the length limit; relax "
        "one or increase beam"
    )


def _text(line: Any) -> str:
    if not isinstance(line, str):
        raise RegardError(f"text must be a str; got {line!r}")
    return line


def _short(line: str) -> str:
    """A line, shortened for a message."""
    return repr(line if len(line) <= 40 else line[:39] + "…")
