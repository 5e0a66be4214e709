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
from typing import TYPE_CHECKING, Any

from regard.answer import Answer, empty_answer, links
from regard.bundle.bundle import Bundle
from regard.decoding_options import SearchOptions
from regard.errors import RegardError, shorten
from regard.line_answers import LineAnswers, accepted
from regard.search.hypothesis import Hypothesis
from regard.search.token_options import TokenOptions
from regard.searcher import Searcher, no_output
from regard.source_encoder import SourceEncoder, as_text, source_limit
from regard.text.template import Template

if TYPE_CHECKING:
    import torch

    from regard.models import Model
    from regard.search import Beam, Search

FIRST_LINES = 64  # searched together at first, so that the first answers arrive at once
MOST_LINES = 8_192


class Pipeline:
    """A model with its tokenizers, from source text to answers.

    Decoding options are keyword arguments, as listed in `regard.DecodingOptions`. Search runs on
    the engine that `engine` names or "auto" selects. The torch model computes alignments and
    attention weights; it is loaded when it is first needed.
    """

    def __init__(
        self,
        loaded: Bundle,
        *,
        long: str = "warn",
        precision: str | None = None,
        engine: str = "auto",
        max_source_length: int | None = None,
    ) -> None:
        longest = loaded.card.get("longest", {})
        self.bundle = loaded
        self.longest_source: int | None = longest.get("source")
        self._searcher = Searcher(loaded, engine=engine, precision=precision)
        positions = self._searcher.source_positions
        self.max_source_length = source_limit(max_source_length, self.longest_source, positions)
        limits = self.longest_source, long, self.max_source_length
        fixed = positions is not None and self.max_source_length == positions
        self._encode = SourceEncoder(loaded.source, *limits, fixed=fixed)
        self._answers = LineAnswers(loaded, self._encode)
        self.length_limits = self._searcher.length_limits
        self.max_length: int | None = self.length_limits["max_length"]

    @property
    def engine(self) -> str:
        """The engine that runs searches with the default options now: native or torch."""
        return self.engine_of()

    def engine_of(self, options: SearchOptions | None = None, /, **keywords: Any) -> str:
        """The engine that runs searches with these decoding options now."""
        searcher = self._searcher
        return searcher.engines.select(searcher.resolve(options, **keywords)).name

    @property
    def refused_engines(self) -> dict[str, str]:
        """The engines that "auto" does not use for this model, and why."""
        return self._searcher.engines.refusals()

    @property
    def model(self) -> Model:
        """The torch model; loaded on first use. Searches follow every change of it."""
        return self.bundle.model

    @model.setter
    def model(self, model: Model) -> None:
        self.bundle = self.bundle.with_model(model, self.bundle.folder)
        self._searcher = self._searcher.with_bundle(self.bundle)

    @property
    def device(self) -> torch.device:
        """The device of the torch model."""
        return next(self.model.parameters()).device

    @property
    def inference_model(self) -> Model:
        """The fast copy of the model that torch searches; built again whenever it changes."""
        return self._searcher.torch_engine("torch models").inference_model

    def refresh_weights(self) -> None:
        """Search with the weights as they are now, after a write through `.data`."""
        self.bundle.mark_changed()
        self._searcher.torch_engine("changed weights").refresh_weights()

    @property
    def default_search(self) -> Beam:
        """The search that runs without options, as an algorithm."""
        search: Any = self.search()
        return search

    def search(self, options: SearchOptions | None = None, /, **keywords: Any) -> Search:
        """The search algorithm for decoding options, which torch runs and `regard.record` takes."""
        from regard.search.build import build_search

        return build_search(self._searcher.resolve(options, **keywords))

    def __call__(
        self,
        text: str,
        search: Search | SearchOptions | None = None,
        *,
        alignment: bool = False,
        weights: bool = False,
        **options: Any,
    ) -> Answer:
        """The best answer to one text."""
        wanted = {"alignment": alignment, "weights": weights}
        (answer,) = self._best_answers([text], search, wanted, options)
        return accepted(answer)

    def many(
        self,
        lines: Iterable[str],
        search: Search | SearchOptions | None = None,
        *,
        alignment: bool = False,
        weights: bool = False,
        **options: Any,
    ) -> Iterator[Answer]:
        """The best answer to each line, in order; at most a few thousand lines are in memory.

        A source that is too long is rejected with a warning: its answer is empty and has an
        `error`.
        """
        wanted = {"alignment": alignment, "weights": weights}
        for answer in self._best_answers(lines, search, wanted, options):
            if answer.error is not None:
                warnings.warn(answer.error, stacklevel=2)
            yield answer

    def answers(
        self,
        lines: Iterable[str],
        search: TokenOptions | Search | SearchOptions | None = None,
        *,
        first: int = FIRST_LINES,
        **options: Any,
    ) -> Iterator[list[Answer]]:
        """All answers that search returns for each line, best first and without duplicate texts.

        A source that is too long has one answer, with an `error`. The `first` lines are searched
        together, then twice as many, and so on up to MOST_LINES.
        """
        if isinstance(lines, str):
            raise RegardError(
                f"lines must be a list or a file of texts; for one text give [{shorten(lines)}]"
            )
        chosen = self._searcher.choose(search, options)
        lines, count = iter(lines), first
        while window := [as_text(line).rstrip("\r\n") for line in islice(lines, count)]:
            yield from self._answers.of_lines(window, lambda asked: self._search(asked, chosen))
            count = min(2 * count, MOST_LINES)

    def best(self, text: str, n: int = 5, **options: Any) -> list[Answer]:
        """The n best answers of a beam search; fewer where the beam finds fewer."""
        found = next(self.answers([text], n_best=n, **options))[:n]
        return [accepted(answer) for answer in found]

    def sample(self, text: str, n: int = 1, **options: Any) -> list[Answer]:
        """n sampled answers; duplicates stay."""
        search = self._searcher.resolve(sample=True, n_best=n, **options)
        if not (ids := self._encode(text)):
            return [empty_answer(text) for _ in range(n)]
        (found,) = self._search([(text, ids)], search)
        return [self._answers.answer(text, ids, hypothesis) for hypothesis in found]

    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """The answer piece by piece, each as soon as all remaining hypotheses share it."""
        search, decode = self._searcher.resolve(**options), self.bundle.target.decode
        if not (ids := self._encode(text)):
            return
        shown, complete = "", False
        for found, complete in self._searcher.stream(search, ids):
            # An incomplete character decodes to �, which the next token may replace.
            certain = decode(found) if complete else decode(found).rstrip("�")
            yield certain[len(shown) :]
            shown = certain
        if not complete:
            raise no_output(text)

    def score(self, source: str, target: str, **languages: str | None) -> Answer:
        """A given target as an answer, with the log-probability of each of its tokens."""
        (answer,) = self.scores([(source, target)], **languages)
        return answer

    def scores(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> Iterator[Answer]:
        """Score many (source, target) pairs, in order, some at a time; languages are codes."""
        template = self.bundle.template.for_languages(source_language, target_language)
        pairs = iter(pairs)
        while window := list(islice(pairs, FIRST_LINES)):
            if alone := next((pair for pair in window if isinstance(pair, str)), None):
                raise RegardError(f"expected a pair of texts, source and target; got {alone!r}")
            yield from self._score_pairs(window, template)

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
        if not (ids := self._encode.ids(text)):
            return [best]
        from regard.teacher_forcing import next_logps

        logps = next_logps(self.model, ids, best.ids[:position], self.bundle.template)
        found: list[Hypothesis] = []
        likely = logps.topk(min(n, len(logps))).indices
        for token in likely[logps[likely].isfinite()].tolist():  # without banned tokens
            search = replace(self._searcher.default_options, prefix=[*best.ids[:position], token])
            found += self._searcher.run(search, [ids])[0][:1]  # none beyond the length limit
        return [self._answers.answer(text, ids, hypothesis) for hypothesis in found]

    def with_attention(
        self, answer: Answer, *, template: Template | None = None, **wanted: bool
    ) -> Answer:
        """The answer with its `alignment` or all attention `weights`, by teacher forcing."""
        from regard.teacher_forcing import alignment, attention_maps, refuse_reversed

        ids, template = self._encode.ids(answer.source), template or self.bundle.template
        if wanted.get("weights"):
            refuse_reversed(template, "attention weights")
        maps = attention_maps(self.model, ids, answer.ids, template)
        aligned = alignment(self.model, maps, template) if wanted.get("alignment") else None
        return replace(answer, alignment=aligned, weights=maps if wanted.get("weights") else None)

    def alignment_links(self, answer: Answer, template: Template) -> list[list[int]]:
        """The links of an answer's alignment; the native engine computes them without torch."""
        matrix = self._searcher.align(self._encode.ids(answer.source), answer.ids, template)
        if matrix is None:
            matrix = self.with_attention(answer, template=template, alignment=True).alignment
        return links(matrix)

    def _best_answers(
        self, lines: Iterable[str], search: Any, wanted: dict[str, bool], options: dict[str, Any]
    ) -> Iterator[Answer]:
        chosen = self._searcher.choose(search, options)
        template = self._searcher.template_of(chosen)
        for best, *_ in self.answers(lines, chosen):
            attention = any(wanted.values()) and best.error is None
            yield self.with_attention(best, template=template, **wanted) if attention else best

    def _score_pairs(
        self, pairs: Sequence[tuple[str, str]], template: Template
    ) -> Iterator[Answer]:
        sources = [self._encode(source) for source, _ in pairs]
        targets = [self.bundle.target.encode(as_text(target).strip()) for _, target in pairs]
        logps = self._searcher.score(sources, targets, template)
        for (line, _), source, target, row in zip(pairs, sources, targets, logps, strict=True):
            yield self._answers.answer(line, source, Hypothesis(target, row, sum(row)))

    def _search(
        self, asked: Sequence[tuple[str, list[int]]], search: TokenOptions | Search
    ) -> list[Sequence[Hypothesis]]:
        """The hypotheses for some texts; a text without any raises."""
        found = self._searcher.run(search, [ids for _, ids in asked])
        for (line, _), hypotheses in zip(asked, found, strict=True):
            if not hypotheses:
                raise no_output(line)
        return found
