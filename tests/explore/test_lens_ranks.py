"""Ranks of the logit lens, explained: the tokens that come before, counted by hand."""

import torch

from regard.trace import logit_lens, record
from regard.trace.derived import rank_among
from tests.explore.helpers import error_message


def test_the_rank_of_a_token_is_explained(view, family, client, described, pipeline):
    query = {"tensor": "dec.0.resid2", "row": 1, "token": 5}
    if family == "recurrent":
        path = f"/api/trace/{described['id']}/explain-lens-rank"
        message = error_message(client.get(path, params=query), 422, "invalid")
        assert message.startswith("the logit lens does not read")
        return
    found = view("explain-lens-rank", **query)
    lens = {one["tensor"]: one for one in view("output", row=1, n=50)["logit_lens"]}
    own = next(step["value"] for step in found["steps"] if step["label"] == "p of this token")
    before = [row["operands"][0]["value"] for row in found["rows"]]
    assert all(p >= own for p in before)
    assert before == sorted(before, reverse=True)
    assert found["value"] == found["result"] == len(before) + 1
    assert [row["running"] for row in found["rows"]] == list(range(1, len(before) + 1))
    label = pipeline.bundle.target.label(lens["dec.0.resid2"]["top"][0]["id"])
    if before:
        assert found["rows"][0]["operands"][0]["name"] == f"p of “{label}”"


def test_equal_probabilities_are_ordered_by_id(models, ids):
    trace = record(models[ids["transformer"]].pipeline, "zebra", "AH B")
    name, row = next(iter(logit_lens(trace, 0).items()))
    equal = torch.full_like(row, 1 / len(row))
    for id in range(len(row)):
        assert rank_among(trace, name, 0, id, equal).result == id + 1
    long = rank_among(trace, name, 0, len(row) - 1, equal, 2)
    assert [term.numbers[0] for term in long.computation.terms] == [len(row) - 3, 1, 1]
    assert long.result == len(row)
