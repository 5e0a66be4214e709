"""The tree of a search as the page gets it, against the tree itself."""

import pytest

from regard.search import Beam
from regard.text import BEGIN
from regard.trace import beam_tree
from tests.explore.small import SOURCE


@pytest.mark.parametrize("width", [1, 3])
def test_the_tree_of_the_search(web, models, ids, asked, family, width):
    pipeline = models[ids[family]].pipeline
    found = web.get(f"/api/trace/{asked['id']}/beam", params={"width": width}).json()
    made = beam_tree(pipeline, SOURCE, Beam(width))
    assert [(node["number"], node["parent"], node["id"], node["fate"], node["rival"]) for node in found["nodes"]] == [
        (node.number, node.parent, node.token, node.fate, node.rival) for node in made.nodes
    ]
    assert [node["total"] for node in found["nodes"]] == pytest.approx([node.total for node in made.nodes])
    assert (found["size"], found["answers"]) == (width, made.answers)
    best = found["nodes"][found["answers"][0]]
    assert best["prefix"] == pipeline(SOURCE, pipeline.search(beam=width)).text
    if width == 3:
        assert best["prefix"] == asked["output"]["text"]
    signs = [BEGIN in made.ids(node.number) for node in made.nodes]  # which no text can say
    assert [node["whole"] for node in found["nodes"]] == [not sign for sign in signs]
    assert found["penalties"] == [1.0] * (1 + max(node.step for node in made.nodes))


def test_no_tree_is_told_of_an_edited_model_or_too_many_beams(web, ids, asked, family):
    edits = [{"kind": "force", "step": 0, "token": 4}]
    edited = web.post("/api/trace", json={"model": ids[family], "source": SOURCE, "edits": edits}).json()
    said = web.get(f"/api/trace/{edited['id']}/beam")
    assert (said.status_code, said.json()["error"]["code"]) == (422, "edited")
    assert "answers greedily" in said.json()["error"]["message"]
    assert web.get(f"/api/trace/{asked['id']}/beam", params={"width": 17}).status_code == 422
