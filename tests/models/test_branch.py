"""Rows that share a source: `branch` equals `select`, for every position, attention and cell."""

import pytest
import torch

from regard.inference import inference_model
from regard.models import Model
from regard.positions import POSITIONS
from tests.contracts.model_cases import TARGET, make
from tests.models.tracked_decoding import TrackedDecoding, random_batch

TRANSFORMERS = [f"transformer-position-{name}" for name in POSITIONS]
TRANSFORMERS += ["transformer-kv-heads-additive", "transformer-window-alibi"]
RECURRENT = [
    "recurrent-bahdanau-additive",
    "recurrent-luong-dot",
    "recurrent-luong-general",
    "recurrent-luong-additive",
    "recurrent-none",
    "recurrent-lstm-bahdanau",
]
every_model = pytest.mark.parametrize(
    "name", [*TRANSFORMERS, *RECURRENT, *(f"fast {name}" for name in TRANSFORMERS)]
)
some_models = pytest.mark.parametrize(
    "name",
    [
        "transformer-position-rotary",
        "transformer-position-t5",
        "recurrent-bahdanau-additive",
        "recurrent-none",
        "recurrent-lstm-bahdanau",
        "fast transformer-position-rotary",
        "fast transformer-position-shaw",
    ],
)


def make_model(name: str) -> Model:
    """The model of a case, or its fast inference copy."""
    model = make(name.removeprefix("fast "))
    return inference_model(model, "fast") if name.startswith("fast ") else model


@every_model
@torch.no_grad()
def test_beams_share_their_source_and_are_reordered(name: str):
    decoding = TrackedDecoding(make_model(name), random_batch([5, 1, 7]))
    decoding.branch([0, 0, 1, 1, 2, 2])  # before the first token
    decoding.step()
    decoding.branch([1, 0, 2, 2, 5, 4])
    decoding.step()
    decoding.step()
    decoding.branch([0, 0, 0, 1, 3, 2, 3, 2, 5, 5, 4, 4])  # more beams than before
    decoding.step()
    decoding.branch([2, 6, 9])  # fewer
    assert len(decoding.step()) == 3


@every_model
@torch.no_grad()
def test_sources_leave_while_beams_branch(name: str):
    decoding = TrackedDecoding(make_model(name), random_batch([5, 2, 7, 3]))
    decoding.step()
    decoding.branch([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    decoding.step()
    decoding.branch([3, 5, 3, 9, 11, 10], sources=[1, 3])
    assert decoding.owners == [1, 1, 1, 3, 3, 3]
    decoding.step()
    decoding.branch([5, 4, 4], sources=[1])
    decoding.step()
    decoding.branch([0, 2, 0])
    decoding.step()
    decoding.branch([], sources=[])  # all of them


@some_models
@torch.no_grad()
def test_selected_rows_have_sources_of_their_own(name: str):
    decoding = TrackedDecoding(make_model(name), random_batch([5, 2, 7]))
    decoding.step()
    decoding.branch([0, 0, 1, 1, 2, 2])
    decoding.step()
    decoding.select([5, 0, 3, 3])
    assert decoding.owners == [2, 0, 1, 1]
    decoding.step()
    decoding.branch([0, 0, 1, 1, 2, 2, 3, 3])  # and may branch again
    decoding.step()
    decoding.select([7])
    decoding.step()


@some_models
@torch.no_grad()
def test_branching_does_not_change_the_original_state(name: str):
    model, source = make_model(name), random_batch([5, 2])
    tokens = torch.randint(TARGET, (2,))
    _, state = model.step(tokens, model.start(model.encode(source)))
    before, _ = model.step(tokens, state)
    other, _ = model.step(torch.tensor([3, 4, 5, 6]), state.branch(torch.tensor([0, 0, 1, 1])))
    after, _ = model.step(tokens, state)
    assert len(other) == 4
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["transformer-position-rotary", "recurrent-bahdanau-additive"])
@torch.no_grad()
def test_the_source_is_not_copied_for_beams(name: str):
    model = make_model(name)
    state = model.start(model.encode(random_batch([5, 2])))
    branched = state.branch(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert branched.memory is state.memory
