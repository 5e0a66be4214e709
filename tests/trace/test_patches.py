"""Patches: edits that put other numbers into a tensor."""

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.trace import record
from tests.trace.random_models import random_model

SOURCE, TARGET = "zebra", "AH B N"


@pytest.fixture(scope="module")
def spelling():
    return regard.load("spelling")


@pytest.mark.parametrize("kind", ["rotary", "additive"])
def test_a_patch_takes_numbers_of_another_trace(kind):
    t = random_model(kind)
    other = record(t, "aba", TARGET)
    name = "dec.norm" if kind == "rotary" else "out.readout"
    patched = record(
        t, SOURCE, TARGET, edits=[{"kind": "patch", "name": name, "values": other[name].tolist()}]
    )
    torch.testing.assert_close(patched["out.logits"], other["out.logits"])
    inside = (
        record(
            t, SOURCE, TARGET, edits=[{"kind": "patch", "name": "dec.0.h", "values": [[0.0] * 8]}]
        )
        if kind == "additive"
        else None
    )
    assert inside is None or not inside["dec.0.h"][0].any()


@pytest.mark.parametrize(
    "name", ["dec.0.self.weights", "dec.0.self.scores", "dec.0.cross.weights", "enc.0.self.weights"]
)
def test_a_patch_with_its_own_numbers_changes_nothing(name):
    t = random_model("rotary")
    greedy = record(
        t, SOURCE, edits=[{"kind": "temperature", "value": 1.0}]
    )  # edited models decode greedily
    again = record(
        t, SOURCE, edits=[{"kind": "patch", "name": name, "values": greedy[name].tolist()}]
    )
    assert again.answer.ids == greedy.answer.ids
    torch.testing.assert_close(again["out.logits"], greedy["out.logits"])


def test_an_earlier_edit_does_not_change_the_patch():
    zeros = {"kind": "patch", "name": "enc.0.self.scores", "values": torch.zeros(4, 6, 6).tolist()}
    both = record(random_model("rotary"), SOURCE, TARGET, edits=[zeros, {"kind": "unscaled"}])
    assert not both["enc.0.self.scores"].any()
    assert both["enc.0.self.scores.own"].any()
    assert "not divided" in str(both.explain("enc.0.self.scores.own", (0, 0, 0)))


def test_a_patch_takes_a_tensor():
    t = random_model("rotary")
    other = record(t, "zebras"[:5][::-1], TARGET)["enc.0.self.q"]
    tensor, listed = (
        record(
            t, SOURCE, TARGET, edits=[{"kind": "patch", "name": "enc.0.self.q", "values": values}]
        )["out.logits"]
        for values in (other, other.tolist())
    )
    assert torch.equal(tensor, listed)


def nested(depth: int) -> list:
    return [nested(depth - 1)] if depth else [0.0]


@pytest.mark.parametrize("values", [[10**400], nested(80)], ids=["too large", "too deep"])
def test_patches_without_a_grid_of_numbers_are_refused(values):
    with pytest.raises(
        RegardError, match="the values of a patch must be numbers in a regular grid"
    ):
        record(
            random_model("rotary"),
            SOURCE,
            TARGET,
            edits=[{"kind": "patch", "name": "enc.0.self.q", "values": values}],
        )


def test_the_last_of_two_patches_counts(spelling):
    plain = record(spelling, "cat", target="K AE T")
    name = "enc.0.self.scores"
    one, two = (torch.zeros_like(plain[name]) + value for value in (1.0, 2.0))
    patches = [{"kind": "patch", "name": name, "values": values.tolist()} for values in (one, two)]
    both = record(spelling, "cat", target="K AE T", edits=[*patches, {"kind": "unscaled"}])
    torch.testing.assert_close(both[name], two)
    torch.testing.assert_close(
        both[f"{name}.own"], plain[name] * plain["enc.0.self.q"].shape[-1] ** 0.5
    )


@pytest.mark.parametrize("value", [float("nan"), 1e39])
def test_patches_that_float32_cannot_hold_are_refused(spelling, value):
    trace = record(spelling, "cat")
    values = torch.zeros(trace["out.logits"].shape).tolist()
    values[0][0] = value
    with pytest.raises(RegardError, match="must be finite in float32"):
        record(spelling, "cat", edits=[{"kind": "patch", "name": "out.logits", "values": values}])
