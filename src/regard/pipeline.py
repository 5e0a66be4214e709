"""Pipeline: text in, text out. What the command line, the server and the explorer share.

>>> t = regard.load("runs/demo/bundle")
>>> print(t("attention"))                  # AH T EH N SH AH N
>>> t.best("attention", n=5)               # the five best, each with its log-probabilities
>>> for answer in t.many(open("words")): print(answer)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard import bundle
from regard.answer import Answer, empty
from regard.device import resolve_device
from regard.errors import RegardError, choose
from regard.inference import ModelCache, search_all
from regard.models import Ensemble, Model, eval_mode, is_finite
from regard.pretrained import resolve_model
from regard.ragged import Ragged
from regard.search import (
    Beam,
    BeamSearch,
    Greedy,
    Hypothesis,
    LengthPenalty,
    Sampling,
    Search,
    SearchResult,
    constraints,
)
from regard.search.attention_weights import alignment as aligned
from regard.search.attention_weights import record_attention
from regard.search.constraint_parsing import parse_constraints, parse_required
from regard.search.length_batching import RATIO, length_limits
from regard.text import UNKNOWN, with_begin, with_end

FIRST_LINES, MOST_LINES = 64, 8_192  # answered together: few at first, so that the first answers come at once
Folder = str | os.PathLike[str]
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(
    folder: Folder | Sequence[Folder],
    *,
    device: str | torch.device = "auto",
    long: str = "warn",
    precision: str = "float32",
) -> Pipeline:
    """The pipeline of a bundle that `regard train` wrote, or of a shipped model by its name; of several, that of
    their ensemble. `long`: what to do with a source longer than any learned from: warn, refuse or allow. `precision`:
    what searches compute in; with bfloat16 a GPU is faster, and close calls fall otherwise, perhaps by their batch."""
    place = resolve_device(device)
    folders = [folder] if isinstance(folder, str | os.PathLike) else folder
    return Pipeline(
        _joined([bundle.load(resolve_model(one), place) for one in folders]), long=long, precision=precision
    )


class Pipeline:
    """A model with its tokenisers, answering."""

    def __init__(self, held: bundle.Bundle, *, long: str = "warn", precision: str = "float32") -> None:
        if long not in ("warn", "refuse", "allow"):
            raise RegardError(f"long must be warn, refuse or allow; got {long!r}")
        self.bundle, self.long, self.precision = held, long, choose(PRECISIONS, precision, "precision")
        self.model, self.device = held.model, next(held.model.parameters()).device
        longest = held.card.get("longest", {})
        self.longest_source: int | None = longest.get("source")
        self.most = None if "target" not in longest else 2 * longest["target"] + 10
        self.reach: dict[str, Any] = {"most": self.most, "ratio": longest.get("ratio", RATIO)}
        self._model_cache = ModelCache(self.precision)
        usual = self.search()
        assert isinstance(usual, Beam)
        self.usual = usual

    @property
    def inference_model(self) -> Model:
        """The model that is searched; made when first needed, for scores and weights are the plain one's, and again
        when the model has changed."""
        return self._model_cache.of(self.model)

    def renew(self) -> None:
        """Search with the weights of now, should they have been written through `.data`; other changes are seen."""
        self._model_cache.clear()

    def search(
        self,
        *,
        beam: int = 4,
        best: int = 1,
        length: float | None = None,
        penalty: str = "power",
        shortest: int = 0,
        longest: int | None = None,
        prefix: str = "",
        banned: Sequence[str] = (),
        required: Sequence[str] = (),
        repetition: float = 1.0,
        no_repeat_ngram: int = 0,
    ) -> Search:
        """A search from plain words and numbers. `length` is the α of the length penalty; left out it is 1 for running
        text, where answers differ in length, and 0 (the likeliest answer) for symbols."""
        usual = float(self.bundle.card.get("task") == "text")
        ranked = LengthPenalty(
            usual if length is None else length, penalty
        )  # looked at even where greedy search needs none
        kept = self.restrictions(
            min_length=shortest,
            max_length=longest,
            prefix=prefix,
            ban=banned,
            repetition_penalty=repetition,
            no_repeat_ngram=no_repeat_ngram,
        )
        needed = parse_required(self.bundle.target, required)
        if not isinstance(beam, int) or beam < 1:
            raise RegardError(f"a beam is at least 1 wide; got {beam!r}")
        if beam == 1 and best == 1 and needed is None:
            return Greedy(kept)
        return Beam(max(beam, best), best, ranked, kept, needed)

    def restrictions(self, **asked: Any) -> tuple[constraints.Constraint, ...]:
        """What every answer must keep to, for any search, in words: see search.worded.restrictions."""
        return parse_constraints(self.bundle.target, **asked)

    def __call__(
        self, text: str, search: Search | None = None, *, alignment: bool = False, weights: bool = False
    ) -> Answer:
        """The best answer to one text."""
        (answer,) = self.many([text], search, alignment=alignment, weights=weights)
        return answer

    def many(
        self, lines: Iterable[str], search: Search | None = None, *, alignment: bool = False, weights: bool = False
    ) -> Iterator[Answer]:
        """The best answer to each line, in their order, as they come: no more than a few thousand are held at once."""
        for answers in self.answers(lines, search):
            yield self.looked(answers[0], alignment=alignment, weights=weights) if alignment or weights else answers[0]

    def answers(
        self, lines: Iterable[str], search: Search | None = None, *, first: int = FIRST_LINES
    ) -> Iterator[list[Answer]]:
        """All answers that the search finds to each line, the best first and no text twice. The `first` lines are
        searched together, then twice as many, and so on to MOST_LINES."""
        if isinstance(lines, str):
            raise RegardError(f"lines are a list or a file of texts; for one text ask with [{_short(lines)}]")
        lines, count = iter(lines), first
        while window := [_text(line).rstrip("\r\n") for line in islice(lines, count)]:
            yield from self._window(window, search or self.usual)
            count = min(2 * count, MOST_LINES)

    def best(self, text: str, n: int = 5, **options: object) -> list[Answer]:
        """The n best answers that a beam finds; fewer where it finds fewer."""
        options = {"beam": max(4, n), **options}
        return next(self.answers([text], self.search(best=n, **options)))[:n]  # type: ignore[arg-type]

    def sample(self, text: str, n: int = 1, *, seed: int = 1, **options: object) -> list[Answer]:
        """n answers drawn by their probability: `temperature`, `top_k`, `top_p`, `min_p` as in search.Sampling."""
        search = Sampling(n, seed=seed, **options)  # type: ignore[arg-type]
        if not (ids := self._encoded(text)):
            return [empty(text) for _ in range(n)]
        return [self._answer(text, ids, found) for found in self._search([(text, ids)], search)[0].hypotheses]

    def stream(self, text: str, *, beam: int = 4, length: float | None = None) -> Iterator[str]:
        """The answer piece by piece, as soon as it is certain: with a beam, what all beginnings that are left share."""
        ids = self._encoded(text)
        if not ids:
            return
        chosen = self.search(beam=beam, length=length)
        source = with_end(Ragged.of([torch.tensor(ids)])).to(self.device)
        settings = chosen if isinstance(chosen, Beam) else Beam(1)  # without a length penalty that is greedy search
        beams = BeamSearch(settings, self.inference_model, source, length_limits(source.lengths, **self.reach))
        shown = ""
        for _ in beams:
            sure = self.bundle.target.decode(beams.committed_prefix()).rstrip("�")  # half a character is not certain
            yield sure[len(shown) :]
            shown = sure
        yield self.bundle.target.decode(beams.results()[0].hypotheses[0].ids)[len(shown) :]

    def score(self, source: str, target: str) -> Answer:
        """A given target as an answer: what the model thinks of each of its tokens."""
        (answer,) = self.scores([(source, target)])
        return answer

    def scores(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Answer]:
        """The same for many pairs, some at a time."""
        pairs = iter(pairs)
        while window := list(islice(pairs, FIRST_LINES)):
            if alone := next((pair for pair in window if isinstance(pair, str)), None):
                raise RegardError(f"a pair of texts is needed, source and target; got {alone!r}")
            yield from self._scored(window)

    def align(self, source: str, target: str | None = None) -> Answer:
        """How much each answer token looked at each source token, for a given target or the model's own answer."""
        return self.looked(self(source) if target is None else self.score(source, target), alignment=True)

    def alternatives(self, text: str, position: int, n: int = 5) -> list[Answer]:
        """The best answers that go as the best one to `position` (from 0), and there with each of the n likeliest
        tokens; `logps[position]` is that token's. An answer may end there."""
        best = self(text)
        if n < 1:
            raise RegardError(f"n must be at least 1; got {n}")
        if not 0 <= position <= len(best.ids):
            raise RegardError(f"{best.text!r} has places 0 to {len(best.ids)} (the end); got {position}")
        if not (ids := self._ids(text)):
            return [best]
        logps = self._after(ids, best.ids[:position])
        found: list[Hypothesis] = []
        for token in logps.topk(min(n, len(logps))).indices.tolist():
            begin = constraints.prefix([*best.ids[:position], token])
            (some,) = search_all(
                replace(self.usual, constraints=(begin,)), self.inference_model, [ids], **self.reach, device=self.device
            )
            found += some.hypotheses[:1]  # none where the answer may not become so long
        return [self._answer(text, ids, hypothesis) for hypothesis in found]

    def looked(self, answer: Answer, *, alignment: bool = False, weights: bool = False) -> Answer:
        """An answer with where it looked, by one teacher-forced pass."""
        source = with_end(Ragged.of([torch.tensor(self._ids(answer.source), dtype=torch.long)]))
        prefix = with_begin(Ragged.of([torch.tensor(answer.ids, dtype=torch.long)]))
        with eval_mode(self.model):
            seen = record_attention(self.model, source.to(self.device), prefix.to(self.device))
        map_ = aligned(self.model, seen) if alignment else None
        return replace(answer, alignment=map_, weights=seen if weights else None)

    def _window(self, lines: Sequence[str], search: Search) -> Iterator[list[Answer]]:
        """Answers to some lines; an empty line is answered by an empty one, and no model is asked."""
        encoded = [self._encoded(line) for line in lines]
        asked = [(line, ids) for line, ids in zip(lines, encoded, strict=True) if ids]
        found = iter(self._search(asked, search))
        for line, ids in zip(lines, encoded, strict=True):
            if not ids:
                yield [empty(line)]
                continue
            answers: dict[str, Answer] = {}
            for hypothesis in next(found).hypotheses:
                answer = self._answer(line, ids, hypothesis)
                answers.setdefault(answer.text, answer)
            yield list(answers.values())

    @torch.no_grad()
    def _scored(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        """What one teacher-forced pass thinks of some pairs."""
        sources, targets = zip(*pairs, strict=True)
        encoded = [self._encoded(line) for line in sources]
        asked = [torch.tensor(ids, dtype=torch.long) for ids in encoded]
        told = [torch.tensor(self.bundle.target.encode(_text(line).strip()), dtype=torch.long) for line in targets]
        batches = with_end(Ragged.of(asked)), with_end(Ragged.of(told)), with_begin(Ragged.of(told))
        source, said, prefix = (batch.to(self.device) for batch in batches)
        with eval_mode(self.model):
            logps = self.model(source, prefix).values.float().log_softmax(-1)
        chosen = said.like(logps.gather(1, said.values[:, None])[:, 0])
        rows = zip(sources, encoded, told, (numbers.tolist() for numbers in chosen), strict=True)
        return [self._answer(line, ids, Hypothesis(own.tolist(), row, sum(row))) for line, ids, own, row in rows]

    def _search(self, asked: Sequence[tuple[str, list[int]]], search: Search) -> list[SearchResult]:
        found = search_all(search, self.inference_model, [ids for _, ids in asked], **self.reach, device=self.device)
        for (line, _), some in zip(asked, found, strict=True):
            if any(one.score != one.score for one in some.hypotheses) or not (some.hypotheses or is_finite(self.model)):
                raise RegardError("the model's numbers are not finite (NaN); it cannot answer")
            if not some.hypotheses:
                what = f"no answer to {_short(line)} keeps all these rules within its length"
                raise RegardError(f"{what}; loosen one, or widen the beam")
        return found

    def _ids(self, line: str) -> list[int]:
        """A source as the model has learned to read it: without white space around it."""
        return self.bundle.source.encode(_text(line).strip())

    def _encoded(self, line: str) -> list[int]:
        ids = self._ids(line)
        if self.longest_source is not None and len(ids) > self.longest_source and self.long != "allow":
            what = f"{_short(line)} has {len(ids):,} tokens; the model has learned from at most {self.longest_source:,}"
            if self.long == "refuse":
                raise RegardError(f"{what}; cut it, or allow long sources")
            warnings.warn(f"{what}: its answer may be poor", stacklevel=2)
        return ids

    def _answer(self, source: str, asked: Sequence[int], found: Hypothesis) -> Answer:
        target = self.bundle.target
        tokens = [target.label(id) for id in found.ids]
        unknown = self.bundle.source.unknown_symbols(source.strip()) if UNKNOWN in asked else []
        return Answer(source, target.decode(found.ids), found.ids, tokens, found.logps, found.score, unknown)

    def _after(self, asked: Sequence[int], said: Sequence[int]) -> Float[Tensor, " vocabulary"]:
        """The log-probabilities of what follows some tokens of an answer."""
        source = with_end(Ragged.of([torch.tensor(asked, dtype=torch.long)])).to(self.device)
        prefix = with_begin(Ragged.of([torch.tensor(said, dtype=torch.long)])).to(self.device)
        with torch.no_grad(), eval_mode(self.model):
            return self.model(source, prefix).values[-1].float().log_softmax(-1)


def _joined(held: Sequence[bundle.Bundle]) -> bundle.Bundle:
    """One bundle that answers for all; the card is the first's."""
    if (kinds := len({(one.source.fingerprint, one.target.fingerprint) for one in held})) != 1:
        raise RegardError(f"an ensemble needs models with the same tokenisers; got {kinds} kinds of {len(held)} models")
    return held[0] if len(held) == 1 else replace(held[0], model=Ensemble([one.model for one in held]))


def _text(line: Any) -> str:
    if not isinstance(line, str):
        raise RegardError(f"a text is needed; got {line!r}")
    return line


def _short(line: str) -> str:
    """A line as a message can hold it."""
    return repr(line if len(line) <= 40 else line[:39] + "…")
