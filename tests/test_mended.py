"""Mended by a reader of the whole: each of these went wrong once."""

import subprocess
import sys

import pytest
import torch

import regard
from regard.config import parse
from regard.errors import RegardError
from regard.models.dropout import Dropout
from regard.trace.edits import Edit


@pytest.fixture(scope="module")
def speller():
    return regard.load("spelling")


@pytest.mark.parametrize("name", ["bundle", "plots", "text", "vectors", "search", "train"])
def test_parts_are_there_without_being_imported(name):
    script = f"import regard; print(regard.{name}.__name__)"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert said == f"regard.{name}\n"


@pytest.mark.parametrize("share", [0.0015, 0.999])
def test_every_share_can_be_dropped(share):
    torch.manual_seed(0)
    dropped = Dropout(share).train()(torch.ones(200_000))
    assert 0 < (dropped == 0).float().mean() < 1
    assert dropped.mean() == pytest.approx(1, abs=0.1)


def test_an_unknown_setting_of_an_edit_is_told_with_those_it_has():
    with pytest.raises(RegardError) as refused:
        parse(
            Edit,
            {
                "kind": "row",
                "attention": "enc.0.self",
                "head": 0,
                "query": 0,
                "weights": [1],
                "weight": [1],
            },
            "edit",
        )
    assert "did you mean 'weights'" in str(refused.value)


def test_two_patches_and_the_scale(speller):
    plain = regard.record(speller, "cat", target="K AE T")
    name = "enc.0.self.scores"
    one, two = (torch.zeros_like(plain[name]) + value for value in (1.0, 2.0))
    patches = [{"kind": "patch", "name": name, "values": values.tolist()} for values in (one, two)]
    both = regard.record(speller, "cat", target="K AE T", edits=[*patches, {"kind": "unscaled"}])
    torch.testing.assert_close(both[name], two)
    torch.testing.assert_close(
        both[f"{name}.own"], plain[name] * plain["enc.0.self.q"].shape[-1] ** 0.5
    )


@pytest.mark.parametrize("value", [float("nan"), 1e39])
def test_a_patch_is_of_numbers(speller, value):
    trace = regard.record(speller, "cat")
    values = torch.zeros(trace["out.logits"].shape).tolist()
    values[0][0] = value
    with pytest.raises(RegardError, match="32 bits can hold"):
        regard.record(
            speller, "cat", edits=[{"kind": "patch", "name": "out.logits", "values": values}]
        )


def test_an_index_may_be_a_list(speller):
    trace = regard.record(speller, "cat")
    assert (
        trace.explain("enc.0.self.weights", [0, 1, 2]).value
        == trace.explain("enc.0.self.weights", (0, 1, 2)).value
    )


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda t: list(t.many("abc")),
            r"lines must be a list or a file of texts; for one text give \['abc'\]",
        ),
        (
            lambda t: regard.load("spelling", device="nowhere"),
            "device 'nowhere' is not available; use cpu",
        ),
    ],
)
def test_no_text_and_no_device(speller, ask, said):
    with pytest.raises(RegardError, match=f"^{said}"):
        ask(speller)
