"""Searcher: from source ids to hypotheses, on the engine that fits the model and the options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.bundle.bundle import Bundle
from regard.decoding_engine import DecodingEngine, EngineRequest, Ids
from regard.decoding_options import RATIO, DecodingOptions, SearchOptions
from regard.engine_choice import EngineSelector, stored_precision
from regard.errors import RegardError, choose, shorten
from regard.native.gate import split_part
from regard.native.position_tables import LEARNED_POSITIONS
from regard.search.hypothesis import Hypothesis
from regard.search.token_options import TokenOptions, resolve_options
from regard.text.template import Template

if TYPE_CHECKING:
    from regard.inference.torch_engine import TorchEngine
    from regard.search import Search

PRECISIONS = {"float32": "the default", "bfloat16": "for GPUs", "int8": "native engine only"}


class Searcher:
    """Searches for the outputs of a bundle's model.

    `length_limits` are the model's limits of output length, as `length_limit` takes them. Changes
    of the torch model are detected; from then on, torch searches.
    """

    def __init__(self, bundle: Bundle, *, engine: str, precision: str | None) -> None:
        if precision is not None:
            choose(PRECISIONS, precision, "precision")
        longest = bundle.card.get("longest", {})
        self.bundle = bundle
        most = None if "target" not in longest else 2 * longest["target"] + 10
        positions = learned_positions(bundle.raw_settings)
        if positions is not None:  # the tokens that start an output take the first ones
            positions -= len(bundle.template.start)
            most = positions if most is None else min(most, positions)
        ratio = longest.get("ratio", RATIO)
        self.length_limits: dict[str, Any] = {"max_length": most, "ratio": ratio}
        self.default_options = self.resolve()
        request = EngineRequest(bundle, precision or "float32")
        if precision is None:
            request = stored_precision(request, engine)
        self.engines = EngineSelector(engine, request)
        self.engines.select(self.default_options)  # opens it, so that errors appear at once

    @property
    def source_positions(self) -> int | None:
        """The tokens of a source for which the model has positions, if these are limited."""
        positions = learned_positions(self.bundle.raw_settings)
        return None if positions is None else positions - self.bundle.template.source_tokens

    def with_bundle(self, bundle: Bundle) -> Searcher:
        """The same search for another bundle."""
        precision = self.engines.request.precision
        return Searcher(bundle, engine=self.engines.requested, precision=precision)

    def resolve(self, options: SearchOptions | None = None, /, **keywords: Any) -> TokenOptions:
        """Decoding options in ids, given as an object or as keyword arguments."""
        if options is not None and keywords:
            raise RegardError(f"give decoding options or keywords, not both; got {keywords}")
        if options is None:
            options = DecodingOptions.of(**keywords)
        elif not isinstance(options, DecodingOptions):
            options = DecodingOptions(**vars(options))
        default_penalty = float(self.bundle.card.get("task") == "text")
        template = self.bundle.template.for_languages(
            options.source_language, options.target_language
        )
        return resolve_options(
            options, self.bundle.target, length_penalty=default_penalty, template=template
        )

    def choose(
        self, search: TokenOptions | Search | SearchOptions | None, options: dict[str, Any]
    ) -> TokenOptions | Search:
        """The given search, or decoding options in ids."""
        if search is not None and options:
            raise RegardError(f"give a search or decoding options, not both; got {options}")
        if search is None or isinstance(search, SearchOptions):
            return self.resolve(search, **options)
        return search

    def template_of(self, search: TokenOptions | Search) -> Template:
        """The special tokens that a search uses."""
        if isinstance(search, TokenOptions):
            return search.template
        from regard.search.build import search_template

        return search_template(search, self.bundle.template)

    def run(
        self, search: TokenOptions | Search, sources: Sequence[Ids]
    ) -> list[Sequence[Hypothesis]]:
        """The hypotheses of each source, best first. NaN raises."""
        engine: Any = self._engine(search)  # only torch is given search algorithms
        found: list[Sequence[Hypothesis]] = engine.search(sources, search, **self.length_limits)
        for hypotheses in found:
            not_a_number = any(item.score != item.score for item in hypotheses)
            if not_a_number or not (hypotheses or engine.is_finite()):
                raise RegardError("the model's outputs are not finite (NaN); it cannot be used")
        return found

    def stream(self, options: TokenOptions, source: Ids) -> Iterator[tuple[Ids, bool]]:
        """The ids of the output so far, after each step, and whether they are complete."""
        if options.sample:
            raise RegardError("stream runs greedy or beam search; leave out sample")
        engine = self.engines.select(options, stream=True)
        return engine.stream(source, options, **self.length_limits)

    def score(
        self, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
    ) -> list[list[float]]:
        """The log-probability of each target token and of END, for each pair."""
        return self.engines.select(self.default_options).score(sources, targets, template)

    def align(self, source: Ids, target: Ids, template: Template) -> Any:
        """The alignment of a target with a source, as an array; None if it is left to torch."""
        return self.engines.select(self.default_options).align(source, target, template)

    def torch_engine(self, purpose: str) -> TorchEngine:
        """The torch engine, for what only it does; raises if another one was requested."""
        return self.engines.torch_engine(purpose)

    def _engine(self, search: TokenOptions | Search) -> DecodingEngine:
        """The engine for decoding options, or for a search algorithm."""
        if isinstance(search, TokenOptions):
            return self.engines.select(search)
        return self.torch_engine(f"a {type(search).__name__} object; pass options instead")


def no_output(line: str) -> RegardError:
    """The error for a text without any output."""
    return RegardError(
        f"no output for {shorten(line)} satisfies all constraints within the length limit; relax "
        "one or increase beam"
    )


def learned_positions(settings: Mapping[str, Any]) -> int | None:
    """The number of positions of `model.position`, if they are learned; of an ensemble, the
    smallest."""
    if isinstance(members := settings.get("members"), list | tuple):
        members = [*members, *settings.get("reversed_members", ())]
        found = [learned_positions(one) for one in members if isinstance(one, Mapping)]
        return min((one for one in found if one is not None), default=None)
    kind, options = split_part(settings.get("position"))
    most = options.get("max_length", LEARNED_POSITIONS) if kind == "learned" else None
    return most if isinstance(most, int) else None  # an engine reports what is wrong with it
