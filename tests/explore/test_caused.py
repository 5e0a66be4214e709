"""Causes as the page gets them, against the library's own."""

import pytest

from regard.search import Beam
from regard.trace import agreement, alignment_matrix, occlusion, record
from tests.explore.small import SOURCE


def test_effects_and_how_weights_agree_with_them(web, models, ids, asked, family):
    found = web.get(f"/api/trace/{asked['id']}/causes").json()
    pipeline = models[ids[family]].pipeline
    trace = record(pipeline, SOURCE, search=Beam(3))
    assert [piece["id"] for piece in asked["following"]] == [piece.id for piece in trace.following]
    truth = occlusion(pipeline, trace)
    assert [[pytest.approx(value, abs=1e-4) for value in row] for row in truth.tolist()] == found["effects"]
    names = ["mean", *(one["name"] for one in asked["attentions"] if one["kind"] == "cross")]
    assert list(found["ranks"]) == names
    assert found["ranks"] == pytest.approx({name: agreement(alignment_matrix(trace, name), truth) for name in names}, abs=0.02)


def test_causes_of_an_edited_model_are_refused(web, ids, family):
    edits = [{"kind": "force", "step": 0, "token": 4}]
    edited = web.post("/api/trace", json={"model": ids[family], "source": SOURCE, "edits": edits}).json()
    said = web.get(f"/api/trace/{edited['id']}/causes")
    assert (said.status_code, said.json()["error"]["code"]) == (422, "edited")
    assert "take the edits away" in said.json()["error"]["message"]
