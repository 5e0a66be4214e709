"""Greedy search on a model that copies its source, and by the fast path of a single source."""

from dataclasses import dataclass

import pytest
import torch

from regard.config import TransformerSettings
from regard.models import build
from regard.models.contract import Model, State
from regard.ragged import Ragged
from regard.search import Greedy, length_limits
from regard.search.greedy import decode, greedy_single, most_likely
from tests.search.known_models import BEGIN, END, RandomModel, StepModel, ragged

VOCABULARY = 9
TRANSFORMER = TransformerSettings(
    width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=16, dropout=0
)


@dataclass(frozen=True)
class CopyState(State):
    """The sources that are copied, and the position."""

    sources: list
    time: int

    def select(self, rows):
        return CopyState([self.sources[row] for row in rows.tolist()], self.time)

    def branch(self, rows, sources=None):
        raise AssertionError("greedy search has one row for each source")


class CopyModel(StepModel):
    """Copies the source again and again. Records the rows and the input tokens of each step."""

    def __init__(self):
        super().__init__()
        self.rows, self.inputs = [], []

    def encode(self, source):
        return [row.tolist() for row in source.unbind()]

    def start(self, memory):
        return CopyState(memory, 0)

    def step(self, tokens, state):
        self.rows.append(len(tokens))
        self.inputs.append(tokens.tolist())
        logits = torch.zeros(len(tokens), VOCABULARY)
        for row, source in enumerate(state.sources):
            logits[row, source[state.time % len(source)]] = 1
        return logits, CopyState(state.sources, state.time + 1)


def greedy(model: Model, source: Ragged, limits: int | list[int]) -> list[list[int]]:
    results = Greedy()(model, source, torch.tensor(limits).expand(len(source)))
    return [result.hypotheses[0].ids for result in results]


def test_each_row_ends_by_itself_without_begin_and_end():
    outputs = greedy(CopyModel(), ragged([5, 6, 7, END], [END], [8, END]), 10)
    assert outputs == [[5, 6, 7], [], [8]]


def test_finished_rows_leave_when_a_quarter_has_finished():
    model = CopyModel()
    greedy(model, ragged([5, 6, 7, END], [END], [8, END]), 10)
    assert model.rows == [3, 2, 1, 1]
    model, sources = CopyModel(), [[5] * n + [END] for n in (1, 2, 3, 4, 5, 6, 7, 8)]
    greedy(model, ragged(*sources), 10)
    assert model.rows == [8, 8, 8, 6, 6, 4, 3, 2, 1]


def test_each_step_reads_the_previous_output():
    model = CopyModel()
    greedy(model, ragged([5, 6, END], [7, END]), 10)
    assert model.inputs == [[BEGIN, BEGIN], [5, 7], [6]]


def test_tokens_after_end_are_ignored():
    sources = [[5, END, 6, 7, 8, 3], *([4, 4, 4, 4, 4, END] for _ in range(5))]
    assert greedy(CopyModel(), ragged(*sources), 10) == [[5], *([4] * 5 for _ in range(5))]


def test_one_limit_for_all_or_one_for_each():
    endless = ragged([5, 6], [7, 8, 3], [4])
    assert greedy(CopyModel(), endless, 4) == [[5, 6, 5, 6], [7, 8, 3, 7], [4, 4, 4, 4]]
    assert greedy(CopyModel(), endless, 0) == [[], [], []]
    model = CopyModel()
    assert greedy(model, endless, [1, 3, 2]) == [[5], [7, 8, 3], [4, 4]]
    assert model.rows == [3, 3, 2, 1]  # END takes a step of its own


def test_the_default_limit_is_twice_the_source_and_20():
    assert length_limits(torch.tensor([1, 30])).tolist() == [22, 80]
    assert length_limits(torch.tensor([1, 30]), 50).tolist() == [22, 50]


def test_begin_and_unknown_may_occur_in_an_output():
    assert greedy(CopyModel(), ragged([BEGIN, 0, END]), 5) == [[BEGIN, 0]]


def test_the_margin_is_that_of_the_closest_step():
    model, source = RandomModel(6), (3, 4, END)
    (result,) = Greedy()(model, ragged(source), torch.tensor([9]))
    margin, prefix = float("inf"), ()
    for token in [*result.hypotheses[0].ids, END]:
        first, second, *_ = sorted(model.next_logps(source)(prefix), reverse=True)
        margin, prefix = min(margin, first - second), (*prefix, token)
    assert len(prefix) < 9
    assert result.margin == pytest.approx(margin, abs=1e-6)
    assert result.hypotheses[0].score == result.hypotheses[0].logp


def test_every_token_is_the_most_likely_of_the_full_pass():
    model = build(TRANSFORMER, VOCABULARY, VOCABULARY).eval()
    source = ragged([5, 6, END], [7, END])
    for row, ids in zip(source.unbind(), greedy(model, source, 6), strict=True):
        logits = model(Ragged.of([row]), ragged([BEGIN, *ids])).values
        expected = logits.argmax(-1).tolist()
        assert expected[: len(ids)] == ids
        assert len(ids) == 6 or expected[-1] == END


@pytest.mark.parametrize("limit", [0, 1, 3, 12])
@pytest.mark.parametrize("seed", range(6))
def test_the_single_source_path_equals_the_batch_path(seed: int, limit: int):
    torch.manual_seed(seed)
    model = build(TRANSFORMER, 12, 12).eval()
    with torch.no_grad():
        model.output.table.mul_(3)  # so that outputs end early and late
    source = Ragged.of([torch.tensor([5, 3, 7, 4, END])])
    ours = greedy_single(model, source, limit)
    ((expected, margin),) = decode(model, source, torch.tensor([limit]), most_likely)
    assert ours.hypotheses[0].ids == expected.ids
    assert ours.hypotheses[0].logps == pytest.approx(expected.logps, abs=1e-6)
    assert ours.hypotheses[0].score == pytest.approx(expected.score, abs=1e-6)
    assert ours.margin == pytest.approx(margin, abs=1e-6)
