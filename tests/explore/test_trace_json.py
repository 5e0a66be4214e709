"""The description of a trace, its tensors and explanations, against the model itself."""

import math

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from regard.explore.trace_json import finite_range
from regard.ragged import Ragged
from regard.text import BEGIN, END
from tests.explore.helpers import SOURCE


def test_description_of_tokens_and_output(described, pipeline):
    answer = pipeline(SOURCE, pipeline.search(beam=3))
    source, target = described["tokens"]["source"], described["tokens"]["target"]
    assert (described["source"], described["teacher_forced"]) == (SOURCE, False)
    assert described["edits"] == []
    assert [token["text"] for token in source] == [*SOURCE, "< end >"]
    assert [token["special"] for token in source] == [False] * 7 + [True]
    assert [token["text"] for token in target] == ["< begin >", *answer.tokens]
    assert [token["position"] for token in target] == list(range(len(answer.tokens) + 1))
    assert [token["id"] for token in described["next_tokens"]] == [*answer.ids, END]
    logps = [token["logp"] for token in described["next_tokens"]]
    assert logps == pytest.approx(answer.logps, abs=1e-4)
    assert described["output"]["text"] == answer.text
    assert described["output"]["logp"] == pytest.approx(answer.logp, abs=1e-4)
    assert described["output"]["score"] == pytest.approx(answer.score, abs=1e-4)
    assert described["check"]["max_delta"] < 1e-4


def test_predicted_tokens_are_the_models_argmax(described, pipeline):
    prefix = [BEGIN, *(token["id"] for token in described["next_tokens"][:-1])]
    source = Ragged.of([torch.tensor([*pipeline.bundle.source.encode(SOURCE), END])])
    with torch.no_grad():
        logps = pipeline.model(source, Ragged.of([torch.tensor(prefix)])).values.log_softmax(-1)
    predicted = described["predicted_tokens"]
    assert [token["id"] for token in predicted] == logps.argmax(1).tolist()
    best = logps.amax(1).tolist()
    assert [token["logp"] for token in predicted] == pytest.approx(best, abs=1e-4)


def test_description_of_tensors_and_attentions(described, traces):
    trace = traces[described["id"]].trace
    assert [tensor["name"] for tensor in described["tensors"]] == list(trace.names)
    for tensor in described["tensors"]:
        values = trace[tensor["name"]]
        finite = values[values.isfinite()]
        assert tensor["shape"] == list(values.shape)
        assert len(tensor["axes"]) == values.ndim
        assert (tensor["min"], tensor["max"]) == (float(finite.min()), float(finite.max()))
        assert set(tensor["inputs"]) <= set(trace.names)
    kinds = {one["name"]: one["kind"] for one in described["attentions"]}
    expected = {"enc.0.self": "encoder", "dec.0.self": "decoder", "dec.0.cross": "cross"}
    expected |= {"dec.1.self": "decoder", "dec.1.cross": "cross"}
    assert kinds == (expected if "enc.0.self" in kinds else {"attn": "cross"})


def test_equal_requests_share_one_computation(client, described, ids, family, traces):
    body = {
        "source": SOURCE,
        "decoding": {"beam": 3, "ban": [], "length_penalty": None},
        "target": None,
        "model": ids[family],
        "edits": [],
    }
    count = len(traces)
    again = client.post("/api/trace", json=body).json()
    assert (again, len(traces)) == (described, count)  # including the seconds it took
    greedy = {**body, "decoding": {"beam": 1}}
    changes = [{"source": "zebra"}, {"target": "Z"}, {"target": ""}]
    others = [greedy, *({**body, **change} for change in changes)]
    found = [client.post("/api/trace", json=other).json() for other in others]
    assert len({one["id"] for one in [described, *found]}) == 5
    forced = client.post("/api/trace", json={**greedy, "target": "Z"}).json()
    assert forced == found[2]  # teacher forcing does not depend on the search
    assert (forced["teacher_forced"], forced["output"]["text"]) == (True, "Z")


@pytest.mark.parametrize("length", [1, 4])
def test_decoding_options_apply_to_the_output(client, ids, family, length):
    options = {"beam": 3, "min_length": length, "max_length": length}
    body = {"model": ids[family], "source": SOURCE, "decoding": options}
    response = client.post("/api/trace", json=body)
    assert response.status_code == 200, response.text
    assert len(response.json()["next_tokens"]) == length + 1  # and the end


def test_tensors_are_sent_bit_for_bit(client, described, traces):
    trace = traces[described["id"]].trace
    names = [name for name in trace.names if name.endswith((".weights", ".masked", ".h"))]
    names += ["out.logits", "out.total"]
    response = client.get(f"/api/trace/{described['id']}/tensors", params={"name": names})
    found = load(response.content)
    assert set(found) == set(names)
    for name, array in found.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, trace[name].numpy())


def test_explanation_recomputes_the_value(view, described, traces):
    trace = traces[described["id"]].trace
    cross = next(one["name"] for one in described["attentions"] if one["kind"] == "cross")
    name = f"{cross}.weights"
    found = view("explain", tensor=name, index="0,1,2")
    assert (found["name"], found["index"]) == (name, [0, 1, 2])
    assert found["value"] == float(trace[name][0, 1, 2])
    assert found["result"] == pytest.approx(found["value"], rel=1e-5)
    total = view("explain", tensor="out.total")["value"]
    assert total == pytest.approx(described["output"]["logp"])


def test_edits_are_returned_with_a_label(client, ids, described, family):
    name = described["attentions"][-1]["name"]
    edit = {"kind": "ablate", "attention": name, "head": 0, "by": "zero"}
    body = {"model": ids[family], "source": SOURCE, "target": "Z", "edits": [edit]}
    found = client.post("/api/trace", json=body).json()
    (returned,) = found["edits"]
    assert {key: returned[key] for key in edit} == edit
    assert name in returned["label"]
    assert found["check"] is None


def test_tokenize_returns_character_offsets(client, ids, family):
    body = {"model": ids[family], "text": " aqn ", "side": "source"}
    found = client.post("/api/tokenize", json=body).json()
    tokens = [(one["text"], one["start"], one["end"], one["special"]) for one in found["tokens"]]
    assert tokens == [("a", 1, 2, False), ("q", 2, 3, False), ("n", 3, 4, False)]
    assert found["unknown"] == ["q"]
    target = client.post("/api/tokenize", json={**body, "text": "Z IY", "side": "target"}).json()
    assert [(one["text"], one["start"]) for one in target["tokens"]] == [("Z", 0), ("IY", 2)]


def test_finite_range_ignores_infinities():
    assert finite_range(torch.tensor([-math.inf, 2.0, -3.0])) == (-3.0, 2.0)
    assert finite_range(torch.tensor([-math.inf])) == (0.0, 0.0)
    assert finite_range(torch.tensor([])) == (0.0, 0.0)
