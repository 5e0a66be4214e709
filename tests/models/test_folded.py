"""One source alone: its attention folded into the weights says what teacher forcing says."""

import pytest
import torch

from regard.inference import inference_model
from regard.ragged import Ragged
from tests.models import test_matrix
from tests.models.test_branch import Walk
from tests.models.test_matrix import SETTINGS, SOURCE, TARGET, close, ids

TWINS = [name for name in SETTINGS if name.startswith("transformer")]


def alone(name: str, length: int) -> Walk:
    return Walk(inference_model(test_matrix.made(name)), ids([length], SOURCE))


@pytest.mark.parametrize("name", TWINS)
@torch.no_grad()
def test_one_row_and_beams_ask_a_folded_source(name: str):
    walk = alone(name, 6)
    assert walk.state.folded is not None
    walk.step()
    walk.branch([0, 0, 0])
    walk.step()
    walk.branch([2, 0])
    assert walk.state.folded is not None
    walk.step()
    walk.select([1, 0, 1])  # each with a source of its own
    assert walk.state.folded is None
    walk.step()


@torch.no_grad()
def test_a_source_is_folded_only_where_that_is_less_work():
    walk = alone(
        "transformer-none-pre", 2_000
    )  # 4 heads × 2,000 tokens × 24 numbers, in place of 24 × 24
    assert walk.state.folded is None
    walk.step()


@torch.no_grad()
def test_several_sources_are_not_folded():
    assert (
        Walk(
            inference_model(test_matrix.made("transformer-none-pre")), ids([3, 3], SOURCE)
        ).state.folded
        is None
    )


@pytest.mark.parametrize("name", TWINS)
@torch.no_grad()
def test_short_sources_are_not_touched_by_what_stands_behind_them(name: str):
    model, lengths = test_matrix.made(name), [2, 7, 1, 5]
    source, prefix = ids(lengths, SOURCE), ids([4] * 4, TARGET)
    quick = inference_model(model)
    state, tokens = quick.start(quick.encode(source)), torch.stack(prefix.unbind())
    whole = torch.stack(model(source, prefix).unbind())
    for time in range(4):
        logits, state = quick.step(tokens[:, time], state)
        close(logits, whole[:, time])
    (longest,) = [some for some in source.unbind() if len(some) == 7]
    apart = quick.encode(Ragged.of([longest])).vectors
    close(quick.encode(source).vectors[2:9], apart)
