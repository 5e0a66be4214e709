"""NativeModel: a model on the native engine, from settings and weights, without torch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from regard.native.cancellation import call_interruptibly
from regard.native.gate import cannot, head_dim, with_defaults
from regard.native.library import NativeError, ResultsStruct, last_error, load_library
from regard.native.model_structs import flatten_score, settings_struct, tensor_structs
from regard.native.native_options import NativeOptions
from regard.native.position_tables import PositionTables, convert_position
from regard.text.template import DEFAULT_TEMPLATE, Template

T = TypeVar("T")

# Multiplications up to which a call is not interruptible: about a tenth of a second. A thread would
# make a call of a millisecond noticeably slower.
SHORT_WORK = 1e9


class NativeHypothesis(NamedTuple):
    """An output: `ids` without END, log-probabilities with that of END, and its score."""

    ids: list[int]
    logps: list[float]
    score: float


class NativeModel:
    """A Transformer or recurrent model on the native engine.

    `settings` are those of the model (a dict, as in a bundle's config), `sizes` the source and
    target vocabulary sizes, `tensors` the weights by name: float32, or int8 with their scales as in
    `regard.int8`. With `int8`, products are computed in int8: float32 weights are quantised per
    output channel, and activations per row. Without it, int8 weights become float32. `kernels`
    selects an instruction set by name; the default is the fastest one.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        sizes: tuple[int, int],
        tensors: Mapping[str, np.ndarray],
        *,
        int8: bool = False,
        kernels: str = "",
    ) -> None:
        self._engine = None
        if reason := cannot(settings):
            raise NativeError(f"the native engine cannot run this model: {reason}")
        settings = with_defaults(settings)
        self._library = load_library()
        self._tensors = dict(tensors)  # the engine reads them in place
        self._parameters = sum(one.size for one in self._tensors.values())
        position = PositionTables(0)
        if settings["kind"] == "transformer":
            sizes_of_heads = settings["heads"], head_dim(settings)
            position = convert_position(
                settings["position"], settings["width"], *sizes_of_heads, self._tensors
            )
        elif settings["attention"] != "none":
            flatten_score(self._tensors)
        structs = tensor_structs(self._tensors)
        frequencies = np.array(position.frequencies, np.float64)
        self._engine = self._library.regard_create(
            settings_struct(settings, sizes, position, int8=int8),
            structs,
            len(structs),
            frequencies.ctypes.data,
            len(frequencies),
            kernels.encode(),
        )
        if not self._engine:
            raise last_error()

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        options: NativeOptions | None = None,
        *,
        threads: int | None = None,
    ) -> list[list[NativeHypothesis]]:
        """The hypotheses of each source (ids without special tokens), best first.

        `limits` are the maximum output lengths. Sources are distributed over `threads` (default:
        OMP_NUM_THREADS, or one per CPU core); a single source uses one. Results depend neither on
        the batch nor on the number of threads.
        """
        options = options or NativeOptions()
        if len(limits) != len(sources):
            raise NativeError(f"{len(sources)} sources need as many limits; got {len(limits)}")
        ended = [options.template.source(ids) for ids in sources]
        ids, ends = _concatenate(ended)
        most = np.array(limits, np.int32)
        seeds = np.zeros(0, np.int64)
        if options.sample:
            seeds = np.array([seed for one in ended for seed in options.sample_seeds(one)])
        struct, count = options.struct(), thread_count(threads)

        def search(cancellation: int | None) -> list[list[NativeHypothesis]]:
            arrays = (array.ctypes.data for array in (ids, ends, most, seeds))
            found = self._library.regard_search(
                self._engine, *arrays, len(ended), struct, count, cancellation
            )
            return self._take_results(found)

        rows = options.n_best if options.sample else options.beam
        return self._call(search, len(ids) + rows * int(most.sum()))

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        template: Template = DEFAULT_TEMPLATE,
        *,
        threads: int | None = None,
    ) -> list[NativeHypothesis]:
        """Given targets as hypotheses, with the log-probability of each token and of END."""
        work = sum(map(len, sources)) + sum(map(len, targets))

        def score(cancellation: int | None) -> list[list[NativeHypothesis]]:
            found = self._score(sources, targets, template, threads, cancellation)
            return self._take_results(found)

        return [one for (one,) in self._call(score, work)]

    def _call(self, function: Callable[[int | None], T], tokens: int) -> T:
        """Call the engine; signals can interrupt the call if it may take long."""
        if self._parameters * tokens < SHORT_WORK:
            return function(None)
        return call_interruptibly(self._library, function)

    def align(
        self,
        source: Sequence[int],
        target: Sequence[int],
        template: Template = DEFAULT_TEMPLATE,
    ) -> np.ndarray:
        """The alignment of a target (ids and END) with a source (ids and special tokens).

        Each row is the mean cross-attention of a decoding step over layers and heads.
        """
        found = self._score([source], [target], template, 1, None, align=True)
        if not found:
            raise last_error()
        shape = len(target) + 1, len(source) + template.source_tokens
        try:
            return np.ctypeslib.as_array(found.contents.alignments, shape).copy()
        finally:
            self._library.regard_free_results(found)

    def stream(
        self, source: Sequence[int], limit: int, options: NativeOptions | None = None
    ) -> Iterator[tuple[list[int], bool]]:
        """After each step, the ids that all hypotheses share, and False; finally, those of the
        best one, and True, unless there is none. Samples are not streamed."""
        options = options or NativeOptions()
        ids, _ = _concatenate([options.template.source(source)])
        stream = self._library.regard_stream_open(
            self._engine, ids.ctypes.data, len(ids), limit, options.struct()
        )
        if not stream:
            raise last_error()
        prefix, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int32()
        try:
            more = 1
            while more:
                more = self._library.regard_stream_step(stream, prefix, count)
                if more < 0:
                    raise last_error()
                yield prefix[: count.value], False
            (found,) = self._take_results(self._library.regard_stream_results(stream))
            if found:
                yield found[0].ids, True
        finally:
            self._library.regard_stream_close(stream)

    def _score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        template: Template,
        threads: int | None,
        cancellation: int | None,
        *,
        align: bool = False,
    ) -> Any:
        if len(targets) != len(sources):
            raise NativeError(f"{len(sources)} sources need as many targets; got {len(targets)}")
        arrays = (
            *_concatenate([template.source(ids) for ids in sources]),
            *_concatenate(targets),
        )
        return self._library.regard_score(
            self._engine,
            *(array.ctypes.data for array in arrays),
            len(sources),
            NativeOptions(template=template).struct(),
            align,
            thread_count(threads),
            cancellation,
        )

    def _take_results(self, found: Any) -> list[list[NativeHypothesis]]:
        """The results of the engine as hypotheses; frees them."""
        if not found:
            raise last_error()
        try:
            return _hypotheses(found.contents)
        finally:
            self._library.regard_free_results(found)

    def __del__(self) -> None:
        if self._engine:
            self._library.regard_destroy(self._engine)


def _concatenate(sequences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """All ids, and where each sequence ends."""
    ids = np.fromiter((token for one in sequences for token in one), np.int32)
    return ids, np.cumsum([len(one) for one in sequences], dtype=np.int64)


def thread_count(threads: int | None) -> int:
    """The given number of threads, or that of OMP_NUM_THREADS, or one per CPU core."""
    if threads is None:
        wanted = os.environ.get("OMP_NUM_THREADS", "")
        if wanted.isdecimal() and int(wanted):
            return int(wanted)
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if threads < 1:
        raise NativeError(f"threads must be at least 1; got {threads}")
    return threads


def _hypotheses(found: ResultsStruct) -> list[list[NativeHypothesis]]:
    """The arrays of the engine as lists of hypotheses."""
    lengths, scores = (part[: found.hypotheses] for part in (found.lengths, found.scores))
    ids = found.ids[: sum(lengths)]
    logps = found.logps[: sum(lengths) + len(lengths)]
    hypotheses = _split(lengths, scores, ids, logps)
    return [[next(hypotheses) for _ in range(count)] for count in found.counts[: found.sources]]


def _split(
    lengths: list[int], scores: list[float], ids: list[int], logps: list[float]
) -> Iterator[NativeHypothesis]:
    at = 0
    for number, (length, score) in enumerate(zip(lengths, scores, strict=True)):
        start = at + number  # each earlier hypothesis has one more log-probability than ids
        yield NativeHypothesis(ids[at : at + length], logps[start : start + length + 1], score)
        at += length
