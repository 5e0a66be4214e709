"""Explanations of cosines, principal components and the logit lens, against numpy."""

import math

import numpy as np
import pytest

from tests.explore.helpers import error_message


def terms(found: dict) -> list[float]:
    return [row["numbers"][-1] for row in found["rows"]]


def test_cosine_of_embeddings_is_explained(view, pipeline):
    table = pipeline.model.source.table.detach().double().numpy()
    found = view("explain-cosine", side="source", first=3, second=5)
    a, b = table[3], table[5]
    cosine = a @ b / math.sqrt((a @ a) * (b @ b))
    assert found["result"] == pytest.approx(cosine, abs=1e-12)
    assert found["value"] == pytest.approx(cosine, abs=1e-6)
    assert terms(found) == pytest.approx((a * b).tolist(), abs=1e-12)
    operand = found["rows"][2]["operands"][0]
    assert (operand["kind"], operand["index"]) == ("parameter", [3, 2])


@pytest.mark.parametrize("axis", [0, 1])
def test_coordinate_of_a_token_is_explained(view, pipeline, axis):
    table = pipeline.model.source.table.detach().double().numpy()
    centred = table - table.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    coordinate = centred[4] @ axes[:, np.argsort(values)[::-1][axis]]
    found = view("explain-pca", side="source", token=4, axis=axis)
    assert abs(found["result"]) == pytest.approx(abs(coordinate), abs=1e-8)
    (point,) = [p for p in view("embedding-space", side="source")["points"] if p["id"] == 4]
    assert found["result"] == pytest.approx(point["xy"[axis]], abs=1e-8)
    assert sum(terms(found)) == pytest.approx(found["result"], abs=1e-9)


def test_logit_lens_is_explained(view, pipeline, family, client, described):
    path = f"/api/trace/{described['id']}/explain-lens"
    query = {"tensor": "dec.0.resid2", "row": 1, "token": 4}
    if family == "recurrent":
        message = error_message(client.get(path, params=query), 422, "invalid")
        assert message.startswith("the logit lens does not read 'dec.0.resid2'")
        return
    found = view("explain-lens", **query)
    rows = {one["tensor"]: one for one in view("output", row=1, n=50)["logit_lens"]}
    label = pipeline.bundle.target.label(4)
    shown = [one["p"] for one in rows["dec.0.resid2"]["top"] if one["text"] == label]
    assert not shown or found["value"] == pytest.approx(shown[0], abs=1e-6)
    assert found["result"] == pytest.approx(found["value"], abs=1e-6)
    state = np.array([row["operands"][0]["value"] for row in found["rows"]])
    logits = pipeline.model.output.table.detach().double().numpy() @ state
    expected = np.exp(logits[4]) / np.exp(logits).sum()
    assert found["result"] == pytest.approx(expected, abs=1e-9)
    assert abs(state.mean()) < 10  # after the final norm


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("explain-cosine", {"side": "source", "first": 0, "second": 999}),
        ("explain-pca", {"side": "source", "token": 999, "axis": 0}),
        ("explain-pca", {"side": "source", "token": 4, "axis": 2}),
        ("explain-lens", {"tensor": "tgt.sum", "row": 999, "token": 4}),
    ],
)
def test_numbers_that_do_not_exist_are_refused(client, described, path, query):
    response = client.get(f"/api/trace/{described['id']}/{path}", params=query)
    assert response.status_code == 422
