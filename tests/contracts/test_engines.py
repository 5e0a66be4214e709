"""Contract of engines: each computes what the model defines, or refuses and names the part.

The graph engine runs with its reference kernels in plain torch; on a GPU, tests/gpu runs the fused
ones. The native engine decides from the settings and runs a copy of the weights.
"""

import pytest
import torch

import regard
from regard.attention import NORMALISERS, SCORES, Attention
from regard.attention.scores import Cosine
from regard.errors import EngineError
from regard.inference import ENGINES, inference_model, search_all, static_decoder
from regard.inference.batch_scheduler import BatchScheduler
from regard.inference.continuous_batching import requests
from regard.kernels.decoding import plain_operations as reference_kernels
from regard.models import Model
from regard.native import NativeOptions, gate
from regard.positions import POSITIONS
from regard.search import (
    Beam,
    Greedy,
    Hypothesis,
    LengthPenalty,
    Search,
    SearchResult,
    length_limits,
)
from regard.text import END
from tests.contracts.model_cases import (
    CASES,
    PAIRS,
    SOURCE,
    TARGET,
    make,
    random_ids,
    source_size,
    teacher_forced_logps,
)
from tests.native.native_models import limits_of, native_copy
from tests.native_build import require_native_engine

SEARCHES = {"greedy": Greedy(), "beam": Beam(2, n_best=2, length_penalty=LengthPenalty(1.0))}
SOURCES = random_ids([4, 1, 6], SOURCE)
MOST = 4
GRAPH_POSITIONS = {"none", "sinusoidal", "learned", "rotary", "alibi", "distance", "t5", "ramp"}
NATIVE_PARTS = {
    "transformer": {
        "score": {"scaled-dot", "dot"},
        "normaliser": {"softmax"},
        "position": {"none", "sinusoidal", "learned", "rotary", "alibi", "distance", "t5", "shaw"},
    },
    "recurrent": {
        "score": {"additive", "dot", "scaled-dot", "general"},
        "normaliser": {"softmax"},
    },
}


def kind_of(part: str | dict) -> str:
    """The registry name in a setting."""
    return part if isinstance(part, str) else part["kind"]


def refused_by_native(name: str) -> str | None:
    """The part of a case that the native engine does not support."""
    settings = CASES[name]
    for part, known in NATIVE_PARTS[settings.kind].items():
        setting = getattr(settings, part)
        attends = settings.kind == "transformer" or settings.attention != "none"
        if kind_of(setting) not in known and attends:
            return repr(kind_of(setting))
        if part != "position" and not isinstance(setting, str) and attends:
            return f"of model.{part}"
    return None


def refused_part(name: str, engine: str) -> str | None:
    """The name that the engine's refusal of a case must contain; None where it must run it."""
    settings = CASES[name]
    if engine == "native":
        return refused_by_native(name)
    if engine in ("fast", "graph") and settings.kind == "recurrent":
        return "Recurrent"
    if engine == "graph":
        if (score := kind_of(settings.score)) != "scaled-dot":
            return SCORES[score].__name__
        if (normaliser := kind_of(settings.normaliser)) != "softmax":
            return NORMALISERS[normaliser].__name__
        if settings.window is not None:
            return f"window({settings.window})"
        if (position := kind_of(settings.position)) not in GRAPH_POSITIONS:
            return POSITIONS[position].__name__
    return None


def refusal(model: Model, engine: str) -> str | None:
    """Why an engine cannot run a model."""
    if engine == "native":
        return gate.cannot(model.settings.model_dump(mode="json"))
    if engine != "graph":
        return ENGINES[engine].cannot(model)
    return ENGINES["fast"].cannot(model) or static_decoder.cannot(
        inference_model(model, "fast"), beams=2
    )


def run_native(search: Search, model: Model) -> list[SearchResult]:
    """The results of SOURCES by the native engine, with the same options."""
    require_native_engine()
    options = NativeOptions()
    if isinstance(search, Beam):
        penalty = search.length_penalty.alpha
        options = NativeOptions(beam=search.size, n_best=search.n_best, length_penalty=penalty)
    native = native_copy(model, (source_size(model.settings), TARGET))
    found = native.search(SOURCES, limits_of(SOURCES, MOST), options)
    return [SearchResult([Hypothesis(*one) for one in each], 0.0) for each in found]


@torch.inference_mode()
def run(search: Search, model: Model, engine: str) -> list[SearchResult]:
    """The results of SOURCES by an engine; the graph engine has two slots for them."""
    if engine == "native":
        return run_native(search, model)
    if engine != "graph":
        return search_all(search, inference_model(model, engine), SOURCES, max_length=MOST)
    fast = inference_model(model, "fast")
    scheduler = BatchScheduler(search, fast, 2, capacity=8, memory=16, kernels=reference_kernels)
    ended = [[*ids, END] for ids in SOURCES]
    limits = length_limits(torch.tensor([len(ids) for ids in ended]), MOST)
    found = scheduler.run(requests(search, ended, limits.tolist()))
    return [found[index] for index in range(len(SOURCES))]


def assert_teacher_forced(results: list[SearchResult], model: Model) -> None:
    """Every source has hypotheses with the log-probability of teacher forcing in float64."""
    assert all(result.hypotheses for result in results)
    pairs = zip(SOURCES, results, strict=True)
    found = [(source, each) for source, result in pairs for each in result.hypotheses]
    targets = [each.ids for _, each in found]
    expected = teacher_forced_logps(model, [source for source, _ in found], targets)
    assert [each.logp for _, each in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("engine", [*ENGINES, "graph", "native"])
@pytest.mark.parametrize("name", CASES)
def test_search_logp_is_teacher_forced_logp(name: str, engine: str):
    model, part = make(name), refused_part(name, engine)
    reason = refusal(model, engine)
    if part is not None:
        assert reason is not None
        assert part in reason
        return
    assert reason is None
    for search in SEARCHES.values():
        assert_teacher_forced(run(search, model, engine), make(name))


@pytest.mark.parametrize("name", PAIRS)
def test_every_score_runs_with_every_normaliser(name: str):
    results = search_all(SEARCHES["beam"], inference_model(make(name)), SOURCES, max_length=MOST)
    assert_teacher_forced(results, make(name))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_explicit_request_never_falls_back(engine: str):
    model = make("recurrent-bahdanau-additive")
    if ENGINES[engine].cannot(model) is None:
        assert type(inference_model(model, engine)).__name__ in ("Recurrent", "Uncached")
    else:
        with pytest.raises(EngineError, match=f"engine '{engine}' cannot run this model: it runs"):
            inference_model(model, engine)


def test_an_unknown_module_is_refused_and_auto_runs_it():
    class HalvedLinear(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) / 2

    def changed() -> Model:
        model = make("transformer-score-scaled-dot")
        torch.manual_seed(0)
        model.decoder[0].feed_forward.outer = HalvedLinear(10, 12)
        return model

    with pytest.raises(EngineError, match=r"decoder\.0\.feed_forward\.outer is a HalvedLinear"):
        inference_model(changed(), "fast")
    results = search_all(Greedy(), inference_model(changed()), SOURCES, max_length=MOST)
    assert_teacher_forced(results, changed())


def test_replaced_parts_are_searched_as_the_model_defines_them():
    pipeline = regard.load("spelling")
    for layer in pipeline.model.decoder:
        layer.self_attention.attention = Attention(Cosine(4, 32), normaliser="sparsemax")
    answer = pipeline("attention")
    assert answer.logp == pytest.approx(pipeline.score("attention", answer.text).logp, abs=1e-4)
