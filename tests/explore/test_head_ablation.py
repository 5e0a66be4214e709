"""Head ablation against edited traces and against weights set to zero."""

import pytest

from regard.explore import head_ablation
from regard.trace import record
from tests.explore.helpers import SOURCE


@pytest.fixture(scope="module")
def ablation(client, ids, family):
    body = {"model": ids[family], "source": SOURCE, "target": "AH B"}
    return client.post("/api/head-ablation", json=body).json()


def test_ablation_agrees_with_edited_traces(ablation, pipeline, described):
    base = pipeline.score(SOURCE, "AH B").logp
    assert ablation["base"] == {"text": "AH B", "logp": pytest.approx(base, abs=1e-4)}
    assert len(ablation["heads"]) == sum(one["heads"] for one in described["attentions"])
    for one in ablation["heads"]:
        assert one["effect"] == pytest.approx(ablation["base"]["logp"] - one["logp"], abs=1e-6)
    for one in ablation["heads"][::4]:
        edit = {"kind": "ablate", "attention": one["attention"], "head": one["head"]}
        assert one["text"] == record(pipeline, SOURCE, edits=[edit]).answer.text
        scored = record(pipeline, SOURCE, "AH B", edits=[edit]).answer.logp
        assert one["logp"] == pytest.approx(scored, abs=1e-4)


def test_ablation_agrees_with_zeroed_output_weights(ablation, pipeline, family):
    if family == "recurrent":
        pytest.skip("it has no output matrix per head")
    stacks = {"enc": pipeline.model.encoder, "dec": pipeline.model.decoder}
    for one in ablation["heads"]:
        stack, layer, kind = one["attention"].split(".")
        out = getattr(stacks[stack][int(layer)], f"{kind}_attention").out.weight
        saved = out.detach().clone()
        try:
            out.data[:, 8 * one["head"] : 8 * one["head"] + 8] = 0
            pipeline.refresh_weights()  # a write through .data is not detected
            assert one["logp"] == pytest.approx(pipeline.score(SOURCE, "AH B").logp, abs=1e-4)
        finally:
            out.data.copy_(saved)
            pipeline.refresh_weights()


def test_ablation_does_not_depend_on_the_batch(client, ids, family, monkeypatch):
    body = {"model": ids[family], "source": SOURCE}
    at_once = client.post("/api/head-ablation", json=body).json()["heads"]
    monkeypatch.setattr(head_ablation, "BATCH_TOKENS", 100)
    in_parts = client.post("/api/head-ablation", json=body).json()["heads"]
    for one, other in zip(at_once, in_parts, strict=True):
        logp, effect = other["logp"], pytest.approx(other["effect"], abs=1e-5)
        assert one == {**other, "logp": pytest.approx(logp), "effect": effect}
