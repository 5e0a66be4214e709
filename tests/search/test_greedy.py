"""Greedy search, on a model whose every word is known beforehand."""

from dataclasses import dataclass

import pytest
import torch

from regard.config import Recurrent, Transformer
from regard.models import build
from regard.models.contract import Model, State
from regard.ragged import Ragged
from regard.search import greedy

BEGIN, END, LETTERS = 1, 2, 9


@dataclass(frozen=True)
class Place(State):
    """The scripts still to be said, and how far they are."""

    scripts: list
    at: int

    def select(self, rows):
        return Place([self.scripts[row] for row in rows.tolist()], self.at)


class Reciter(Model):
    """Says the source word for word; ends where the source ends. Keeps how many rows each step had."""

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

    def read(self, source, prefix):
        raise NotImplementedError

    def project(self, vectors):
        raise NotImplementedError

    def looks(self):
        return []


def ragged(*rows):
    return Ragged.of([torch.tensor(row) for row in rows])


def test_each_row_ends_by_itself_without_begin_and_end():
    said = greedy(Reciter(), ragged([5, 6, 7, END], [END], [8, END]), longest=10)
    assert said == [[5, 6, 7], [], [8]]


def test_rows_that_have_ended_leave_the_batch():
    model = Reciter()
    greedy(model, ragged([5, 6, 7, END], [END], [8, END]), longest=10)
    assert model.rows == [3, 2, 1, 1]


def test_each_step_hears_what_was_said_last():
    model = Reciter()
    greedy(model, ragged([5, 6, END], [7, END]), longest=10)
    assert model.heard == [[BEGIN, BEGIN], [5, 7], [6]]


def test_one_limit_for_all_or_one_for_each_is_kept_to():
    chatty = ragged([5, 6], [7, 8, 3], [4])
    assert greedy(Reciter(), chatty, longest=4) == [[5, 6, 5, 6], [7, 8, 3, 7], [4, 4, 4, 4]]
    assert greedy(Reciter(), chatty, longest=torch.tensor([1, 3, 2])) == [[5], [7, 8, 3], [4, 4]]
    model = Reciter()
    greedy(model, chatty, longest=torch.tensor([1, 3, 2]))
    assert model.rows == [3, 2, 1]


def test_a_symbol_that_only_looks_special_is_said():
    assert greedy(Reciter(), ragged([BEGIN, 0, END]), longest=5) == [[BEGIN, 0]]


def settings():
    small = {"width": 16, "heads": 2, "encoder": 1, "decoder": 2, "hidden": 16}
    for position in ("rotary", "sinusoidal", "t5"):
        yield Transformer(**small, position=position)
    for attention in ("additive", "general", "none"):
        yield Recurrent(width=16, attention=attention)


@pytest.mark.parametrize("chosen", list(settings()), ids=lambda s: getattr(s, "position", None) or s.attention)
def test_an_answer_does_not_depend_on_its_company_or_order(chosen):
    model = build(chosen, LETTERS, LETTERS).eval()
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(3, LETTERS, (length,), generator=draw) for length in (1, 5, 2, 9, 3, 5)]
    rows = [torch.cat([row, torch.tensor([END])]) for row in rows]
    together = greedy(model, Ragged.of(rows), longest=12)
    alone = [greedy(model, Ragged.of([row]), longest=12)[0] for row in rows]
    backwards = greedy(model, Ragged.of(rows[::-1]), longest=12)[::-1]
    assert together == alone == backwards
    assert len({tuple(said) for said in together}) > 1  # else nothing was compared


def test_the_first_word_is_the_likeliest_of_the_full_pass():
    model = build(Transformer(width=16, heads=2, encoder=1, decoder=1, hidden=16), LETTERS, LETTERS).eval()
    source = ragged([5, 6, END], [7, END])
    said = greedy(model, source, longest=6)
    for row, words in zip(source.unbind(), said, strict=True):
        logits = model(Ragged.of([row]), ragged([BEGIN, *words])).values
        likeliest = logits.argmax(-1).tolist()
        assert likeliest[: len(words)] == words
        assert len(words) == 6 or likeliest[-1] == END
