"""Continuous batching on a CPU with reference kernels, against searches on the host."""

from types import SimpleNamespace

import pytest
import torch

from regard.config import TransformerSettings
from regard.inference import continuous_batching, inference_model
from regard.inference.batch_scheduler import DEFAULT_SLOTS, BatchScheduler, Request
from regard.inference.continuous_batching import cannot, requests
from regard.kernels.decoding import plain_operations
from regard.models import build
from regard.search import Beam, Greedy, Hypothesis, LengthPenalty, SearchResult
from regard.search.constraints import max_length, min_length
from regard.text import END
from tests.search.known_models import ragged, random_sources

VOCABULARY, CAPACITY = 11, 16
SHAPES = [
    {},
    {"position": "sinusoidal", "norm_order": "post", "activation": "relu"},
    {"position": "learned", "norm": "rms", "activation": "gelu", "kv_heads": 1},
    {"position": "alibi", "kv_heads": 2},
    {"position": "distance", "norm_order": "post", "norm": "rms"},
    {"position": "t5", "tie_embeddings": "none"},
]
SEARCHES = {
    "greedy": Greedy(),
    "greedy of 3 to 5": Greedy((min_length(3), max_length(5))),
    "beam 3": Beam(3),
    "beam 4, 2 best": Beam(4, n_best=2, length_penalty=LengthPenalty(1.0)),
    "beam 2 of 2 to 4": Beam(
        2,
        n_best=2,
        length_penalty=LengthPenalty(0.6, "gnmt"),
        constraints=(min_length(2), max_length(4)),
    ),
}


def make_fast_model(**shape):
    torch.manual_seed(3)
    sizes = {"width": 16, "heads": 4, "encoder_layers": 1, "decoder_layers": 2, "ffn_width": 24}
    model = build(TransformerSettings(**sizes, dropout=0.0, **shape), 9, VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        model.output.table.mul_(0.5)
    return inference_model(model.eval())


def make_scheduler(search, model, slots: int) -> BatchScheduler:
    return BatchScheduler(
        search, model, slots, capacity=CAPACITY, memory=16, kernels=plain_operations
    )


def length_limits(sources) -> list[int]:
    return [len(ids) + 4 for ids in sources]


@torch.inference_mode()
def run(search, model, sources, slots: int) -> list[SearchResult]:
    """Results by continuous batching in so many slots."""
    scheduler = make_scheduler(search, model, slots)
    results = scheduler.run(requests(search, sources, length_limits(sources)))
    return [results[i] for i in range(len(sources))]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert [a.ids for a in one.hypotheses] == [a.ids for a in other.hypotheses]
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.logps == pytest.approx(b.logps, abs=1e-4)
            assert a.score == pytest.approx(b.score, abs=1e-4)
        assert min(one.margin, 1e9) == pytest.approx(min(other.margin, 1e9), abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_results_equal_those_of_the_host(search):
    """Thirteen sources in four slots; expected outputs from one search of all on the host."""
    model, sources = make_fast_model(), random_sources(13)
    expected = search(model, ragged(*sources), torch.tensor(length_limits(sources)))
    ours = run(search, model, sources, 4)
    assert_same(ours, expected)
    assert len({tuple(result.hypotheses[0].ids) for result in ours}) > 3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("search", [SEARCHES["greedy"], SEARCHES["beam 3"]], ids=["greedy", "beam"])
def test_every_kind_of_decoder(shape, search):
    model, sources = make_fast_model(**shape), random_sources(5)
    expected = search(model, ragged(*sources), torch.tensor(length_limits(sources)))
    assert_same(run(search, model, sources, 2), expected)


def test_a_scheduler_can_run_again():
    model, sources = make_fast_model(), random_sources(6)
    with torch.inference_mode():
        scheduler = make_scheduler(Beam(2), model, 4)
        waiting = requests(Beam(2), sources, length_limits(sources))
        first, second = (scheduler.run(waiting) for _ in range(2))
    assert first == second
    assert list(scheduler.decoder.clock.active) == [0] * 4


def test_requests_that_do_not_fit_are_excluded():
    sources = [[3, END], [3] * 3_000, [4, END]]
    assert requests(Greedy(), sources, [5, 5, 5_000]) == [Request(0, [3, END], 0, 5)]
    assert requests(Greedy((min_length(4),)), sources, [3, 9, 9]) == [Request(2, [4, END], 4, 9)]


def test_continuous_batching_needs_a_gpu():
    assert cannot(Greedy(), make_fast_model(), "cpu") == "it needs a GPU and Triton"


def test_number_of_slots_for_a_number_of_requests():
    expected = {1: 1, 2: 8, 8: 8, 9: 64, 64: 64, 256: 64, 257: 512, 9_999: 512}
    slots = continuous_batching._slots
    assert {count: slots(count, torch.float32) for count in expected} == expected
    half = {count: slots(count, torch.bfloat16) for count in expected}
    assert half == expected | {2: 64, 8: 64}


class FakeScheduler:
    """Returns its number of slots as the output of every request, with the given margins."""

    def __init__(self, slots: int, margins: dict[int, float]):
        self.decoder, self.margins = SimpleNamespace(slots=slots), margins
        self.requested: list[int] = []

    def run(self, waiting):
        self.requested = [request.number for request in waiting]
        output = [Hypothesis([self.decoder.slots], [0.0], 0.0)]
        return {n: SearchResult(output, self.margins.get(n, 1.0)) for n in self.requested}


def slots_used(schedulers: dict, wanted: int, count: int, monkeypatch) -> dict[int, int]:
    """The number of slots in which each of `count` requests was decided."""

    def scheduler(search, model, waiting, slots):
        return schedulers.get(slots)

    monkeypatch.setattr(continuous_batching, "_slots", lambda count, dtype: wanted)
    monkeypatch.setattr(continuous_batching, "_scheduler", scheduler)
    waiting = [Request(i, [3, END], 0, 5) for i in range(count)]
    results = continuous_batching._run(Greedy(), make_fast_model(), waiting)
    return {number: result.hypotheses[0].ids[0] for number, result in results.items()}


@pytest.mark.parametrize("slots", [8, 512])
def test_near_ties_are_decided_with_the_default_slots(slots: int, monkeypatch):
    default = FakeScheduler(DEFAULT_SLOTS, {1: 1e-6})  # whatever its own margins
    schedulers = {slots: FakeScheduler(slots, {1: 1e-6, 3: 0.0}), DEFAULT_SLOTS: default}
    used = slots_used(schedulers, slots, 4, monkeypatch)
    assert used == {0: slots, 1: DEFAULT_SLOTS, 2: slots, 3: DEFAULT_SLOTS}
    assert default.requested == [1, 3]


def test_the_default_slots_decide_their_own_near_ties(monkeypatch):
    schedulers = {DEFAULT_SLOTS: FakeScheduler(DEFAULT_SLOTS, {2: 0.0})}
    used = slots_used(schedulers, DEFAULT_SLOTS, 4, monkeypatch)
    assert used == dict.fromkeys(range(4), DEFAULT_SLOTS)


def test_near_ties_are_left_out_without_memory_for_them(monkeypatch):
    """They are then searched on the host."""
    schedulers = {8: FakeScheduler(8, {1: 1e-6})}
    assert slots_used(schedulers, 8, 3, monkeypatch) == {0: 8, 2: 8}
    assert slots_used({}, 8, 3, monkeypatch) == {}
