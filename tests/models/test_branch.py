"""Rows that share a source: branching is selecting, for every model, position and attention."""

import pytest
import torch

from regard.inference import inference_model
from regard.models import Model
from regard.ragged import Ragged
from tests.models import test_matrix
from tests.models.test_matrix import SETTINGS, SOURCE, TARGET, close, ids

PLAIN = [
    name for name in SETTINGS if not name.endswith("-post")
]  # where a norm stands is nothing to a branch
PLAIN = [name for name in PLAIN if not name.startswith("lstm") or name == "lstm-bahdanau-additive"]
SWIFT = [f"fast {name}" for name in PLAIN if name.startswith("transformer")]
every = pytest.mark.parametrize("name", [*PLAIN, *SWIFT])
SOME = [
    "transformer-rotary-pre",
    "transformer-t5-pre",
    "gru-bahdanau-additive",
    "gru-none-additive",
    "lstm-bahdanau-additive",
]
some = pytest.mark.parametrize(
    "name", [*SOME, "fast transformer-rotary-pre", "fast transformer-shaw-pre"]
)


def made(name: str) -> Model:
    model = test_matrix.made(name.removeprefix("fast "))
    return inference_model(model) if name in SWIFT else model


def expected(model, source: Ragged, owners: list[int], said: torch.Tensor) -> torch.Tensor:
    """What follows each row's tokens, by teacher forcing, each with a source of its own."""
    sources = source.unbind()
    truth = model(Ragged.of([sources[owner] for owner in owners]), Ragged.of(list(said)))
    return torch.stack([row[-1] for row in truth])


def _places(rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.long)


class Walk:
    """A state, with what each row has said and whose source it looks at, kept by hand."""

    def __init__(self, model, source: Ragged) -> None:
        self.model, self.source = model, source
        self.state = model.start(model.encode(source))
        self.owners, self.said = (
            list(range(len(source))),
            torch.empty(len(source), 0, dtype=torch.long),
        )

    def step(self) -> torch.Tensor:
        tokens = torch.randint(TARGET, (len(self.owners),))
        logits, self.state = self.model.step(tokens, self.state)
        self.said = torch.cat([self.said, tokens[:, None]], 1)
        close(logits, expected(self.model, self.source, self.owners, self.said))
        return logits

    def branch(self, rows: list[int], kept: list[int] | None = None) -> None:
        self._chosen(
            rows, self.state.branch(_places(rows), None if kept is None else _places(kept))
        )

    def select(self, rows: list[int]) -> None:
        self._chosen(rows, self.state.select(_places(rows)))

    def _chosen(self, rows, state) -> None:
        self.state, self.said = state, self.said[_places(rows)]
        self.owners = [self.owners[row] for row in rows]


@every
@torch.no_grad()
def test_beams_share_their_source_from_the_beginning_and_are_reordered(name: str):
    walk = Walk(made(name), ids([5, 1, 7], SOURCE))
    walk.branch([0, 0, 1, 1, 2, 2])  # before anything was said
    walk.step()
    walk.branch([1, 0, 2, 2, 5, 4])
    walk.step()
    walk.step()
    walk.branch([0, 0, 0, 1, 3, 2, 3, 2, 5, 5, 4, 4])  # more beams than before
    walk.step()
    walk.branch([2, 6, 9])  # and fewer
    assert len(walk.step()) == 3


@every
@torch.no_grad()
def test_sources_leave_while_beams_branch(name: str):
    walk = Walk(made(name), ids([5, 2, 7, 3], SOURCE))
    walk.step()
    walk.branch([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    walk.step()
    walk.branch([3, 5, 3, 9, 11, 10], kept=[1, 3])
    assert walk.owners == [1, 1, 1, 3, 3, 3]
    walk.step()
    walk.branch([5, 4, 4], kept=[1])
    walk.step()
    walk.branch([0, 2, 0])
    walk.step()
    walk.branch([], kept=[])  # and at last all of them


@some
@torch.no_grad()
def test_rows_selected_after_branching_have_sources_of_their_own(name: str):
    walk = Walk(made(name), ids([5, 2, 7], SOURCE))
    walk.step()
    walk.branch([0, 0, 1, 1, 2, 2])
    walk.step()
    walk.select([5, 0, 3, 3])
    assert walk.owners == [2, 0, 1, 1]
    walk.step()
    walk.branch([0, 0, 1, 1, 2, 2, 3, 3])  # and may branch again
    walk.step()
    walk.select([7])
    walk.step()


@some
@torch.no_grad()
def test_a_state_that_was_branched_is_still_what_it_was(name: str):
    model, source = made(name), ids([5, 2], SOURCE)
    tokens = torch.randint(TARGET, (2,))
    _, state = model.step(tokens, model.start(model.encode(source)))
    before, _ = model.step(tokens, state)
    other, _ = model.step(torch.tensor([3, 4, 5, 6]), state.branch(torch.tensor([0, 0, 1, 1])))
    after, _ = model.step(tokens, state)
    assert len(other) == 4
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["transformer-rotary-pre", "gru-bahdanau-additive"])
@torch.no_grad()
def test_the_source_is_not_copied_for_beams(name: str):
    model, source = made(name), ids([5, 2], SOURCE)
    state = model.start(model.encode(source))
    branched = state.branch(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert branched.memory is state.memory
