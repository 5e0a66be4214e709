"""Greedy search, on a model whose every word is known beforehand."""

from dataclasses import dataclass

import pytest
import torch

from regard.config import RecurrentSettings, TransformerSettings
from regard.models import build
from regard.models.contract import Model, State
from regard.ragged import Ragged
from regard.search import Greedy, length_limits
from regard.search.autoregressive import decode
from regard.search.greedy import greedy_single, most_likely
from tests.search.trees import BEGIN, END, FAMILIES, Chance, Stepped, forced, made, ragged, sources

LETTERS = 9


@dataclass(frozen=True)
class Place(State):
    """The scripts still to be said, and how far they are."""

    scripts: list
    at: int

    def select(self, rows):
        return Place([self.scripts[row] for row in rows.tolist()], self.at)

    def branch(self, rows, sources=None):
        raise AssertionError("greedy search has one row for each source")


class Reciter(Stepped):
    """Copies the source and ends where the source ends. Records the rows of each step."""

    def __init__(self):
        super().__init__()
        self.rows, self.heard = [], []

    def encode(self, source):
        return [row.tolist() for row in source.unbind()]

    def start(self, memory):
        return Place(memory, 0)

    def step(self, tokens, state):
        self.rows.append(len(tokens))
        self.heard.append(tokens.tolist())
        logits = torch.zeros(len(tokens), LETTERS)
        for row, script in enumerate(state.scripts):
            logits[row, script[state.at % len(script)]] = 1
        return logits, Place(state.scripts, state.at + 1)


def greedy(model: Model, source: Ragged, max_length: int | list[int]) -> list[list[int]]:
    most = torch.tensor(max_length).expand(len(source))
    return [some.hypotheses[0].ids for some in Greedy()(model, source, most)]


def test_each_row_ends_by_itself_without_begin_and_end():
    said = greedy(Reciter(), ragged([5, 6, 7, END], [END], [8, END]), 10)
    assert said == [[5, 6, 7], [], [8]]


def test_rows_that_have_ended_leave_the_batch_when_a_quarter_of_it_has():
    model = Reciter()
    greedy(model, ragged([5, 6, 7, END], [END], [8, END]), 10)
    assert model.rows == [3, 2, 1, 1]
    model, scripts = Reciter(), [[5] * n + [END] for n in (1, 2, 3, 4, 5, 6, 7, 8)]
    greedy(model, ragged(*scripts), 10)
    assert model.rows == [8, 8, 8, 6, 6, 4, 3, 2, 1]


def test_each_step_hears_what_was_said_last():
    model = Reciter()
    greedy(model, ragged([5, 6, END], [7, END]), 10)
    assert model.heard == [[BEGIN, BEGIN], [5, 7], [6]]


def test_what_a_finished_row_says_while_it_waits_is_not_heard_of():
    scripts = [[5, END, 6, 7, 8, 3], *([4, 4, 4, 4, 4, END] for _ in range(5))]
    assert greedy(Reciter(), ragged(*scripts), 10) == [[5], *([4] * 5 for _ in range(5))]


def test_one_limit_for_all_or_one_for_each_is_kept_to():
    chatty = ragged([5, 6], [7, 8, 3], [4])
    assert greedy(Reciter(), chatty, 4) == [[5, 6, 5, 6], [7, 8, 3, 7], [4, 4, 4, 4]]
    assert greedy(Reciter(), chatty, 0) == [[], [], []]
    model = Reciter()
    assert greedy(model, chatty, [1, 3, 2]) == [[5], [7, 8, 3], [4, 4]]
    assert model.rows == [3, 3, 2, 1]  # the end is a step of its own


def test_the_usual_limit_is_twice_the_source_and_some():
    assert length_limits(torch.tensor([1, 30])).tolist() == [22, 80]
    assert length_limits(torch.tensor([1, 30]), 50).tolist() == [22, 50]


def test_a_symbol_that_only_looks_special_is_said():
    assert greedy(Reciter(), ragged([BEGIN, 0, END]), 5) == [[BEGIN, 0]]


def test_no_sources_give_no_answers():
    assert (
        Greedy()(Reciter(), Ragged(torch.empty(0).long(), torch.tensor([0])), torch.empty(0).long())
        == []
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_the_models_own_also_where_the_limit_makes_it_end(family):
    model, asked = made(family, LETTERS, LETTERS), sources(6)
    for source, some in zip(asked, Greedy()(model, ragged(*asked), torch.arange(6)), strict=True):
        (one,) = some.hypotheses
        assert one.logps == pytest.approx(forced(model, source, tuple(one.ids)), abs=1e-5)
        assert one.score == one.logp == sum(one.logps)


def test_the_margin_is_the_narrowest_step():
    model, source = Chance(6), (3, 4, END)
    (some,) = Greedy()(model, ragged(source), torch.tensor([9]))
    narrow, said = float("inf"), ()
    for token in [*some.hypotheses[0].ids, END]:
        first, second, *_ = sorted(model.next(source)(said), reverse=True)
        narrow, said = min(narrow, first - second), (*said, token)
    assert len(said) < 9
    assert some.margin == pytest.approx(narrow, abs=1e-6)


def settings():
    small = {
        "width": 16,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "ffn_width": 16,
        "tie_embeddings": "none",
    }
    for position in ("rotary", "sinusoidal", "t5"):
        yield TransformerSettings(**small, position=position)
    for attention in ("bahdanau", "luong", "none"):
        yield RecurrentSettings(width=16, attention=attention)


@pytest.mark.parametrize(
    "chosen", list(settings()), ids=lambda s: getattr(s, "position", None) or s.attention
)
def test_an_answer_does_not_depend_on_its_company_or_order(chosen):
    model, rows = build(chosen, LETTERS, LETTERS).eval(), sources(6)
    together = greedy(model, ragged(*rows), 12)
    alone = [greedy(model, ragged(row), 12)[0] for row in rows]
    backwards = greedy(model, ragged(*rows[::-1]), 12)[::-1]
    assert together == alone == backwards
    assert len({tuple(said) for said in together}) > 1  # else nothing was compared


def test_the_first_word_is_the_likeliest_of_the_full_pass():
    model = build(
        TransformerSettings(width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=16),
        LETTERS,
        LETTERS,
    ).eval()
    source = ragged([5, 6, END], [7, END])
    said = greedy(model, source, 6)
    for row, words in zip(source.unbind(), said, strict=True):
        logits = model(Ragged.of([row]), ragged([BEGIN, *words])).values
        most_likely = logits.argmax(-1).tolist()
        assert most_likely[: len(words)] == words
        assert len(words) == 6 or most_likely[-1] == END


@pytest.mark.parametrize("limit", [0, 1, 3, 12])
@pytest.mark.parametrize("seed", range(6))
def test_a_source_alone_is_answered_as_in_company(seed, limit):
    torch.manual_seed(seed)
    model = build(
        TransformerSettings(
            width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=16, dropout=0
        ),
        12,
        12,
    ).eval()
    with torch.no_grad():
        model.output.table.mul_(3)  # so that ends come early and late
    source = Ragged.of([torch.tensor([5, 3, 7, 4, END])])
    ours = greedy_single(model, source, limit)
    ((theirs, margin),) = decode(model, source, torch.tensor([limit]), most_likely)
    assert ours.hypotheses[0].ids == theirs.ids
    assert ours.hypotheses[0].logps == pytest.approx(theirs.logps, abs=1e-6)
    assert ours.hypotheses[0].score == pytest.approx(theirs.score, abs=1e-6)
    assert ours.margin == pytest.approx(margin, abs=1e-6)
