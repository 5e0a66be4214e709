"""Edits in any order, of any origin: faults that were found by trying, each of which stays mended."""

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.text import END
from regard.trace import record
from tests.trace.random_models import random_model

SOURCE, TARGET = "zebra", "AH B N"
WARM = {"kind": "temperature", "at": "dec.0.cross", "value": 3.0}
ROW = {
    "kind": "row",
    "attention": "dec.0.cross",
    "head": 1,
    "query": 2,
    "weights": [0.5, 0.5, 0, 0, 0, 0],
}
EVEN = {"kind": "knock-out", "attention": "dec.0.cross", "head": 0, "by": "uniform"}


@pytest.mark.parametrize("others", [[ROW], [ROW, EVEN], [EVEN]])
def test_a_temperature_may_be_set_after_other_edits(others):
    t = random_model("rotary")
    first = record(t, SOURCE, TARGET, edits=[WARM, *others])
    last = record(t, SOURCE, TARGET, edits=[*others, WARM])
    torch.testing.assert_close(
        first["dec.0.cross.weights"], last["dec.0.cross.weights"], rtol=0, atol=0
    )
    torch.testing.assert_close(first["out.logits"], last["out.logits"], rtol=0, atol=0)
    plain = record(t, SOURCE, TARGET, edits=others)
    assert not torch.allclose(last["out.logits"], plain["out.logits"], atol=1e-4)
    assert last.explain("dec.0.cross.weights", (2, 1, 0)).difference < 1e-6


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_shuffled_answer_is_the_greedy_one_of_its_own_numbers(seed):
    trace = record(regard.load("spelling"), "attention", edits=[{"kind": "shuffled", "seed": seed}])
    said, positions = trace.answer.ids, trace.numbers["tgt.positions"]
    assert trace["out.logprobs"].argmax(-1)[: len(said)].tolist() == said != []
    assert len(positions.unique()) == len(positions)
    assert positions.tolist() != sorted(positions.tolist())


def test_a_patch_takes_a_tensor():
    t = random_model("rotary")
    other = record(t, "zebras"[:5][::-1], TARGET)["enc.0.self.q"]
    given, listed = (
        record(
            t, SOURCE, TARGET, edits=[{"kind": "patch", "name": "enc.0.self.q", "values": values}]
        )["out.logits"]
        for values in (other, other.tolist())
    )
    assert torch.equal(given, listed)


def nested(depth: int) -> list:
    return [nested(depth - 1)] if depth else [0.0]


@pytest.mark.parametrize("values", [[10**400], nested(80)], ids=["too large", "too deep"])
def test_patches_that_are_no_numbers_are_refused_in_one_line(values):
    with pytest.raises(RegardError, match="the values of a patch must be a full grid of numbers"):
        record(
            random_model("rotary"),
            SOURCE,
            TARGET,
            edits=[{"kind": "patch", "name": "enc.0.self.q", "values": values}],
        )


def test_weights_by_hand_stay_numbers():
    row = {**ROW, "weights": [1e300] * 6}
    with pytest.raises(RegardError, match="less than or equal to 1000000"):
        record(random_model("rotary"), SOURCE, TARGET, edits=[row])


def test_a_token_forced_beyond_the_answer_is_said():
    t = regard.load("spelling")
    token = t.bundle.target.encode("Z")[0]
    edits = [
        {"kind": "force", "step": 2, "token": END},
        {"kind": "force", "step": 5, "token": token},
    ]
    with pytest.raises(
        RegardError, match="a token is forced at step 5, and the edited answer ends at step 2"
    ):
        record(t, "attention", edits=edits)
    assert len(record(t, "attention", edits=edits[:1]).answer.ids) == 2
