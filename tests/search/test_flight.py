"""Flights on a CPU, with operations in plain torch: who sits where and for how long, against
searches of the host.
"""

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
from tests.search.trees import ragged, sources

VOCABULARY, ROOM = 11, 16
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


def made(**shape):
    torch.manual_seed(3)
    model = build(
        TransformerSettings(
            width=16,
            heads=4,
            encoder_layers=1,
            decoder_layers=2,
            ffn_width=24,
            dropout=0.0,
            **shape,
        ),
        9,
        VOCABULARY,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        model.output.table.mul_(0.5)
    return inference_model(model.eval())


def length_limits(asked):
    return [len(ids) + 4 for ids in asked]


@torch.inference_mode()
def flown(search, model, asked, seats, memory=16):
    flight = BatchScheduler(
        search, model, seats, capacity=ROOM, memory=memory, kernels=plain_operations
    )
    found = flight.run(requests(search, asked, length_limits(asked)))
    return [found[i] for i in range(len(asked))]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert [a.ids for a in one.hypotheses] == [a.ids for a in other.hypotheses]
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.logps == pytest.approx(b.logps, abs=1e-4)
            assert a.score == pytest.approx(b.score, abs=1e-4)
        assert min(one.margin, 1e9) == pytest.approx(min(other.margin, 1e9), abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_who_sits_beside_whom_changes_nothing(search):
    """Thirteen sources in four slots; expected outputs from one search of all on the host."""
    model, asked = made(), sources(13)
    expected = search(model, ragged(*asked), torch.tensor(length_limits(asked)))
    ours = flown(search, model, asked, 4)
    assert_same(ours, expected)
    assert len({tuple(some.hypotheses[0].ids) for some in ours}) > 3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("search", [SEARCHES["greedy"], SEARCHES["beam 3"]], ids=["greedy", "beam"])
def test_every_kind_of_decoder_flies(shape, search):
    model, asked = made(**shape), sources(5)
    assert_same(
        flown(search, model, asked, 2),
        search(model, ragged(*asked), torch.tensor(length_limits(asked))),
    )


def test_a_flight_can_be_taken_again():
    model, asked = made(), sources(6)
    with torch.inference_mode():
        flight = BatchScheduler(
            Beam(2), model, 4, capacity=ROOM, memory=16, kernels=plain_operations
        )
        first, second = (
            flight.run(requests(Beam(2), asked, length_limits(asked))) for _ in range(2)
        )
    assert first == second
    assert list(flight.decoder.clock.active) == [0] * 4


def test_who_cannot_fly():
    asked = [[3, END], [3] * 3_000, [4, END]]
    assert requests(Greedy(), asked, [5, 5, 5_000]) == [Request(0, [3, END], 0, 5)]
    assert requests(Greedy((min_length(4),)), asked, [3, 9, 9]) == [Request(2, [4, END], 4, 9)]


def test_nobody_flies_without_a_gpu():
    assert cannot(Greedy(), made(), "cpu") is not None


def test_seats_for_how_many():
    wanted = {1: 1, 2: 8, 8: 8, 9: 64, 64: 64, 256: 64, 257: 512, 9_999: 512}
    assert {count: continuous_batching._slots(count, torch.float32) for count in wanted} == wanted
    assert {
        count: continuous_batching._slots(count, torch.bfloat16) for count in wanted
    } == wanted | {2: 64, 8: 64}


class Certain:
    """A flight that finds for everybody what it is told, and says who came."""

    def __init__(self, seats: int, margins: dict[int, float]):
        self.decoder, self.margins, self.came = SimpleNamespace(slots=seats), margins, []

    def run(self, waiting):
        self.came = [one.number for one in waiting]
        return {
            n: SearchResult(
                [Hypothesis([self.decoder.slots], [0.0], 0.0)], self.margins.get(n, 1.0)
            )
            for n in self.came
        }


def said(found):
    return {number: some.hypotheses[0].ids[0] for number, some in found.items()}


def test_close_calls_are_decided_in_a_usual_flight(monkeypatch):
    """Whoever flies with 8 or 512 seats, and whatever the second flight thinks of it."""
    waiting = [Request(i, [3, END], 0, 5) for i in range(4)]
    for seats in (8, 512):
        known = {
            seats: Certain(seats, {1: 1e-6, 3: 0.0}),
            DEFAULT_SLOTS: Certain(DEFAULT_SLOTS, {1: 1e-6}),
        }
        monkeypatch.setattr(continuous_batching, "_slots", lambda count, dtype, seats=seats: seats)
        monkeypatch.setattr(
            continuous_batching,
            "_scheduler",
            lambda search, model, some, seats, known=known: known[seats],
        )
        assert said(continuous_batching._run(Greedy(), made(), waiting)) == {
            0: seats,
            1: DEFAULT_SLOTS,
            2: seats,
            3: DEFAULT_SLOTS,
        }
        assert known[DEFAULT_SLOTS].came == [1, 3]
    alone = {DEFAULT_SLOTS: Certain(DEFAULT_SLOTS, {2: 0.0})}
    monkeypatch.setattr(continuous_batching, "_slots", lambda count, dtype: DEFAULT_SLOTS)
    monkeypatch.setattr(
        continuous_batching, "_scheduler", lambda search, model, some, seats: alone[seats]
    )
    assert said(continuous_batching._run(Greedy(), made(), waiting)) == dict.fromkeys(
        range(4), DEFAULT_SLOTS
    )


def test_without_room_for_a_usual_flight_close_calls_go_the_usual_way(monkeypatch):
    known = {8: Certain(8, {1: 1e-6})}
    monkeypatch.setattr(continuous_batching, "_slots", lambda count, dtype: 8)
    monkeypatch.setattr(
        continuous_batching, "_scheduler", lambda search, model, some, seats: known.get(seats)
    )
    waiting = [Request(i, [3, END], 0, 5) for i in range(3)]
    assert said(continuous_batching._run(Greedy(), made(), waiting)) == {0: 8, 2: 8}
    monkeypatch.setattr(continuous_batching, "_scheduler", lambda search, model, some, seats: None)
    assert continuous_batching._run(Greedy(), made(), waiting) == {}
