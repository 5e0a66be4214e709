"""CTranslate2Model: a model on CTranslate2, with the interface of the native engine."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.bundle import Bundle
from regard.errors import RegardError
from regard.hub.ctranslate2_export import (
    adds_source_end,
    require_ctranslate2,
    tokens,
    write_ctranslate2,
)
from regard.native import NativeHypothesis, NativeOptions, thread_count
from regard.text.template import DEFAULT_TEMPLATE, Template

Ids = Sequence[int]


class CTranslate2Model:
    """A folder of CTranslate2, searched by ids like `NativeModel`.

    Beam search stops when it has as many finished hypotheses as beams; the search of Regard goes on
    until no better one is possible, so results may differ. Log-probabilities are those of the model
    for the outputs; constraints do not change them.
    """

    def __init__(
        self,
        folder: Path,
        source: Sequence[str],
        target: Sequence[str],
        *,
        int8: bool = False,
        template: Template = DEFAULT_TEMPLATE,
        adds_end: bool = True,
    ) -> None:
        self.template, self._adds_end = template, adds_end
        self._library = require_ctranslate2()
        self._folder, self._compute = folder, "int8" if int8 else "float32"
        self._source, self._target = list(source), list(target)
        self._ids = {token: id for id, token in enumerate(target)}
        self._translators: dict[int, Any] = {}

    @classmethod
    def from_bundle(cls, bundle: Bundle, *, int8: bool = False) -> CTranslate2Model:
        """Convert a bundle to a temporary folder, which lives as long as the model."""
        folder = Path(tempfile.mkdtemp(prefix="regard-ctranslate2-"))
        sides = tokens(bundle.source), tokens(bundle.target)
        adds_end = adds_source_end(bundle)
        model = cls(folder, *sides, int8=int8, template=bundle.template, adds_end=adds_end)
        weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
        write_ctranslate2(bundle, folder, int8=int8)
        return model

    def search(
        self,
        sources: Sequence[Ids],
        limits: Sequence[int],
        options: NativeOptions | None = None,
        *,
        threads: int | None = None,
    ) -> list[list[NativeHypothesis]]:
        """The hypotheses of each source (ids without END), best first."""
        options = options or NativeOptions(template=self.template)
        if reason := self.cannot_search(options):
            raise RegardError(f"CTranslate2 cannot run this search: {reason}; use another engine")
        if len(limits) != len(sources):
            raise RegardError(f"{len(sources)} sources need as many limits; got {len(limits)}")
        translator = self._translator(threads)
        found: dict[int, list[list[int]]] = {}
        for limit, places in _by_limit(limits, options).items():
            results = translator.translate_batch(
                [self._source_tokens(sources[place], options.template) for place in places],
                **self._arguments(options, limit, len(places)),
            )
            for place, result in zip(places, results, strict=True):
                given = len(options.template.start) - 1
                rows = [[self._ids[token] for token in one[given:]] for one in result.hypotheses]
                found[place] = [row[:limit] for row in rows]
        flat = [(sources[place], ids) for place in range(len(sources)) for ids in found[place]]
        logps = iter(self.score(flat, options.template, threads=threads))
        alpha = options.length_penalty
        return [
            [_hypothesis(ids, next(logps), alpha) for ids in found[place]]
            for place in range(len(sources))
        ]

    def score(
        self,
        pairs: Sequence[tuple[Ids, Ids]],
        template: Template | None = None,
        *,
        threads: int | None = None,
    ) -> list[list[float]]:
        """The log-probabilities of each target token and of END, for (source, target) ids."""
        template, translator = template or self.template, self._translator(threads)
        given = template.start[1:]
        results = translator.score_batch(
            [self._source_tokens(source, template) for source, _ in pairs],
            [self._tokens(self._target, [*given, *target]) for _, target in pairs],
            max_input_length=0,
        )
        return [list(result.log_probs)[len(given) :] for result in results]

    def cannot_search(self, options: NativeOptions) -> str | None:
        """Why it cannot run a search; None if it can."""
        if options.template.start[0] != self.template.start[0]:
            return "its first start token was fixed by the export"
        return cannot_search(options)

    def _translator(self, threads: int | None) -> Any:
        count = thread_count(threads)  # as many as the native engine would use
        if count not in self._translators:
            before = torch.get_num_threads()  # they share OpenMP, whose count a translator sets
            self._translators[count] = self._library.Translator(
                str(self._folder),
                device="cpu",
                compute_type=self._compute,
                inter_threads=1,
                intra_threads=count,
            )
            torch.set_num_threads(before)
        return self._translators[count]

    def _arguments(self, options: NativeOptions, limit: int, sources: int) -> dict[str, Any]:
        given, never = options.template.start[1:], [[id] for id in options.template.banned]
        prefix = self._tokens(self._target, [*given, *options.prefix])
        return {
            "beam_size": options.beam,
            "num_hypotheses": options.n_best,
            "length_penalty": options.length_penalty,
            "min_decoding_length": options.min_length,
            "max_decoding_length": limit + len(given) + 1,  # END counts
            "max_input_length": 0,
            "repetition_penalty": options.repetition_penalty,
            "no_repeat_ngram_size": options.no_repeat_ngram,
            "target_prefix": [prefix] * sources if prefix else None,
            "suppress_sequences": [
                self._tokens(self._target, ids) for ids in (*never, *options.ban)
            ]
            or None,
        }

    def _source_tokens(self, ids: Ids, template: Template) -> list[str]:
        """A source with the special tokens that CTranslate2 does not add itself."""
        return self._tokens(self._source, ids if self._adds_end else template.source(ids))

    @staticmethod
    def _tokens(names: Sequence[str], ids: Ids) -> list[str]:
        return [names[id] for id in ids]


def cannot_search(options: NativeOptions) -> str | None:
    """Why CTranslate2 cannot run a search; None if it can."""
    if options.required:
        return "it has no required words"
    if options.sample:
        return "its random numbers cannot be seeded for each source"
    if options.gnmt:
        return "it has no GNMT length penalty"
    return None


def _by_limit(limits: Sequence[int], options: NativeOptions) -> dict[int, list[int]]:
    """The places of the sources with each limit: a batch of CTranslate2 has one."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, limit in enumerate(limits):
        most = limit if options.max_length is None else min(limit, options.max_length)
        places[most].append(place)
    return places


def _hypothesis(ids: list[int], logps: list[float], alpha: float) -> NativeHypothesis:
    return NativeHypothesis(ids, logps, sum(logps) / len(logps) ** alpha)
