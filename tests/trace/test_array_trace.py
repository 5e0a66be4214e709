"""Traces from given arrays: names, shapes, values, analyses and errors."""

import numpy as np
import pytest
import torch

import regard
from regard.errors import RegardError
from regard.trace import Trace, alignment_matrix, entropy, links

SOURCE, TARGET = ["the", "cat", "</s>"], ["<s>", "die", "Katze"]
CROSS = np.array([[[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.0, 0.5, 0.5]]])


@pytest.fixture
def trace():
    arrays = {"dec.0.cross.weights": CROSS, "enc.0.self.weights": np.full((2, 3, 3), 1 / 3)}
    return Trace.from_arrays(SOURCE, TARGET, arrays)


def test_numbers_and_axes_are_those_given(trace):
    assert trace.names == ["dec.0.cross.weights", "enc.0.self.weights"]
    assert torch.equal(trace["dec.0.cross.weights"], torch.tensor(CROSS).float())
    assert trace.axes("dec.0.cross.weights") == ("head", "target", "source")
    assert [(one.name, one.kind, one.heads) for one in trace.attentions] == [
        ("dec.0.cross", "cross", 1),
        ("enc.0.self", "encoder", 2),
    ]
    assert [piece.text for piece in trace.following] == ["die", "Katze", "</s>"]
    assert trace.has_model is False


def test_analyses_of_given_weights(trace):
    assert links(alignment_matrix(trace)) == [[0, 0], [1, 1]]
    assert entropy(trace["enc.0.self.weights"]).tolist() == pytest.approx([np.log2(3)] * 2)


def test_a_given_number_is_explained_as_such(trace):
    explained = trace.explain("dec.0.cross.weights", (0, 1, 1))
    assert explained.value == pytest.approx(0.7)
    assert explained.result == explained.value
    assert explained.operation == "given"
    assert explained.place == "head 0, query 1 “die”, key 1 “cat”"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"dec.0.cross.weights": np.zeros((1, 2, 3))},
            r"^dec.0.cross.weights must have shape \(head, target 3, source 3\); got \(1, 2, 3\)$",
        ),
        ({"weights": CROSS}, r"^unknown tensor 'weights'; use Regard's names, such as "),
        ({"src.embed": np.zeros((3, 4))}, r"^no attention weights among the arrays; name one "),
        ({}, r"^no attention weights among the arrays"),
    ],
)
def test_wrong_arrays_are_one_line(arrays, message):
    with pytest.raises(RegardError, match=message) as raised:
        Trace.from_arrays(SOURCE, TARGET, arrays)
    assert "\n" not in str(raised.value)


def test_a_model_is_not_at_hand(trace):
    with pytest.raises(RegardError, match=r"^this trace has given numbers and no model; "):
        trace.pipeline.bundle  # noqa: B018
    with pytest.raises(RegardError, match=r"^following must have one token for each of the 3 "):
        Trace.from_arrays(SOURCE, TARGET, {"dec.0.cross.weights": CROSS}, following=["die"])


def test_the_page_of_given_arrays_has_them(trace, tmp_path):
    page = regard.show(trace).save(tmp_path / "page.html").read_text()
    assert "dec.0.cross.weights" in page
    assert "Katze" in page
