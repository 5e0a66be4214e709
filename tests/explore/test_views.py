"""Each view of a trace, for both families, against numbers that come from elsewhere."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from scipy.stats import entropy as bits
from sklearn.decomposition import PCA

from regard.commands.formats import format_alignment as pharaoh
from regard.explore import sweep as sweeping
from regard.explore.describe import extent
from regard.explore.numbers import dumps
from regard.ragged import Ragged
from regard.text import BEGIN, END
from regard.trace import distance, entropy, links, rank, record
from regard.trace import residual_analysis as spaces
from tests.explore.small import SOURCE


@pytest.fixture(scope="module")
def view(web, asked):
    def look(path: str, **query):
        answer = web.get(f"/api/trace/{asked['id']}/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return look


@pytest.fixture(scope="module")
def pipeline(models, ids, family):
    return models[ids[family]].pipeline


@pytest.fixture(scope="module")
def logits(pipeline, asked):
    """What the model itself says of this answer, all rows at once."""
    said = [token["id"] for token in asked["following"]][:-1]
    source = Ragged.of([torch.tensor([*pipeline.bundle.source.encode(SOURCE), END])])
    with torch.no_grad():
        return pipeline.model(source, Ragged.of([torch.tensor([BEGIN, *said])])).values


def test_the_trace_tells_tokens_answer_and_tensors(asked, pipeline, logits, traces):
    answer = pipeline(SOURCE, pipeline.search(beam=3))
    assert (asked["source"], asked["given"], asked["edits"]) == (SOURCE, False, [])
    assert [token["text"] for token in asked["tokens"]["source"]] == [*SOURCE, "< end >"]
    assert [token["special"] for token in asked["tokens"]["source"]] == [False] * 7 + [True]
    assert [token["text"] for token in asked["tokens"]["target"]] == ["< begin >", *answer.tokens]
    assert [token["position"] for token in asked["tokens"]["target"]] == list(range(len(answer.tokens) + 1))
    assert [token["id"] for token in asked["following"]] == [*answer.ids, END]
    logps = logits.log_softmax(-1)
    assert [token["logp"] for token in asked["following"]] == pytest.approx(answer.logps, abs=1e-4)
    assert [token["id"] for token in asked["predicted"]] == logps.argmax(1).tolist()
    assert [token["logp"] for token in asked["predicted"]] == pytest.approx(logps.amax(1).tolist(), abs=1e-4)
    assert asked["output"]["text"] == answer.text
    assert asked["output"]["logp"] == pytest.approx(answer.logp, abs=1e-4)
    assert asked["output"]["score"] == pytest.approx(answer.score, abs=1e-4)
    assert asked["check"]["max_delta"] < 1e-4
    trace = traces[asked["id"]].trace
    assert [tensor["name"] for tensor in asked["tensors"]] == list(trace.names)
    for tensor in asked["tensors"]:
        values = trace[tensor["name"]]
        finite = values[values.isfinite()]
        assert tensor["shape"] == list(values.shape)
        assert len(tensor["axes"]) == values.ndim
        assert (tensor["min"], tensor["max"]) == (float(finite.min()), float(finite.max()))
        assert set(tensor["inputs"]) <= set(trace.names)
    names = {one["name"]: one["kind"] for one in asked["attentions"]}
    expected = {"enc.0.self": "encoder", "dec.0.self": "decoder", "dec.0.cross": "cross"}
    expected |= {"dec.1.self": "decoder", "dec.1.cross": "cross"}
    assert names == (expected if "enc.0.self" in names else {"attn": "cross"})


def test_the_same_question_has_the_same_id_and_is_computed_once(web, asked, ids, family, traces):
    ask = {"source": SOURCE, "decode": {"method": "beam", "beam": 3}, "target": None, "model": ids[family], "edits": []}
    count = len(traces)
    again = web.post("/api/trace", json=ask).json()
    assert (again, len(traces)) == (asked, count)  # the seconds too are those of the one computation
    greedy = {**ask, "decode": {"method": "greedy"}}
    others = [greedy, {**ask, "source": "zebra"}, {**ask, "target": "Z"}, {**ask, "target": ""}]
    found = [web.post("/api/trace", json=other).json() for other in others]
    assert len({one["id"] for one in [asked, *found]}) == 5
    same = web.post("/api/trace", json={**greedy, "target": "Z"}).json()
    assert same == found[2]  # to a given target nothing is searched
    assert (same["given"], same["output"]["text"]) == (True, "Z")


def test_tensors_travel_as_safetensors_bit_for_bit(web, asked, traces):
    trace = traces[asked["id"]].trace
    names = [name for name in trace.names if name.endswith((".weights", ".masked", ".h"))] + ["out.logits", "out.total"]
    answer = web.get(f"/api/trace/{asked['id']}/tensors", params={"name": names})
    found = load(answer.content)
    assert set(found) == set(names)
    for name, array in found.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, trace[name].numpy())


def test_an_explanation_is_the_engines(view, asked, traces):
    trace = traces[asked["id"]].trace
    name = next(one["name"] for one in asked["attentions"] if one["kind"] == "cross") + ".weights"
    found = view("explain", tensor=name, index="0,1,2")
    assert (found["name"], found["index"]) == (name, [0, 1, 2])
    assert found["value"] == float(trace[name][0, 1, 2])
    assert found["result"] == pytest.approx(found["value"], rel=1e-5)
    assert view("explain", tensor="out.total")["value"] == pytest.approx(asked["output"]["logp"])


@pytest.mark.parametrize("side", ["source", "target"])
def test_neighbours_are_the_nearest_by_cosine(view, asked, pipeline, side):
    table = getattr(pipeline.model, side).table.detach().double().numpy()
    token = asked["tokens"][side][1]
    found = view("neighbours", side=side, position=1, n=4)
    assert found["token"] == token
    own = table[token["id"]]
    cosines = {i: float(row @ own / np.sqrt((row @ row) * (own @ own))) for i, row in enumerate(table)}
    del cosines[token["id"]]
    best = sorted(cosines, key=cosines.__getitem__, reverse=True)[:4]
    assert [one["id"] for one in found["neighbours"]] == best
    assert [one["cosine"] for one in found["neighbours"]] == pytest.approx([cosines[i] for i in best], abs=1e-6)
    assert found["neighbours"][0]["text"] == getattr(pipeline.bundle, side).label(best[0])
    assert len(view("neighbours", side=side, position=1, n=900)["neighbours"]) == len(table) - 1


def test_the_plane_is_that_of_pca(view, pipeline):
    table = pipeline.model.source.table.detach().double().numpy()
    found = view("space", side="source")
    truth = PCA(2).fit(table)
    assert found["explained"] == pytest.approx(truth.explained_variance_ratio_.tolist(), rel=1e-5)
    ours, theirs = np.array([[p["x"], p["y"]] for p in found["points"]]), truth.transform(table)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-5)
    ids = pipeline.bundle.source.encode(SOURCE)
    for point in found["points"]:
        assert point["here"] == [i for i, id in enumerate([*ids, END]) if id == point["id"]]


def test_of_a_large_vocabulary_the_tokens_and_what_lies_around_them_are_shown(view, monkeypatch):
    monkeypatch.setattr(spaces, "WHOLE", 3)
    monkeypatch.setattr(spaces, "AROUND", 1)
    found = view("space", side="target")["points"]
    here = {point["id"] for point in found if point["here"]}
    near = {
        view("neighbours", side="target", position=p["here"][0], n=1)["neighbours"][0]["id"] for p in found if p["here"]
    }
    assert {point["id"] for point in found} == here | near


@pytest.mark.parametrize(("rows", "width"), [(1, 4), (3, 1), (5, 2), (4, 4)])
def test_a_plane_is_found_however_few_vectors_there_are(rows, width):
    places, explained = spaces.pca_plane(torch.randn(rows, width))
    assert places.shape == (rows, 2)
    assert len(explained) == 2
    assert 0 <= sum(explained) <= 1 + 1e-9


def test_output_ranks_the_vocabulary(view, asked, logits, pipeline):
    row = len(asked["following"]) - 2
    found, logps = view("output", row=row, n=3), logits[row].double().log_softmax(-1)
    best = logps.topk(3)
    assert [one["id"] for one in found["top"]] == best.indices.tolist()
    assert [one["logp"] for one in found["top"]] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert [one["p"] for one in found["top"]] == pytest.approx(best.values.exp().tolist(), abs=1e-5)
    assert [one["logit"] for one in found["top"]] == pytest.approx(logits[row][best.indices].tolist(), abs=1e-4)
    assert found["entropy"] == pytest.approx(bits(logps.exp().numpy(), base=2), abs=1e-4)
    assert (found["vocabulary"], found["word"]) == (len(logps), None)
    word = view("output", row=row, word="IY")["word"]
    (id,) = pipeline.bundle.target.encode("IY")
    assert (word["id"], word["text"]) == (id, "IY")
    assert word["rank"] == sorted(logps.tolist(), reverse=True).index(float(logps[id])) + 1
    assert word["logp"] == pytest.approx(float(logps[id]), abs=1e-4)


def test_the_lens_reads_the_stream_with_the_output_table(view, asked, logits, pipeline, family, traces):
    lens = view("output", row=1)["lens"]
    if family == "recurrent":
        assert lens == []
        return
    steps = [f"dec.{layer}.resid{part}" for layer in (0, 1) for part in (1, 2, 3)]
    assert [one["at"] for one in logit_lens] == ["tgt.sum", *steps, "dec.norm"]
    said = asked["following"][1]["id"]
    ps = logits[1].softmax(-1)
    for last in logit_lens[-2:]:  # what is left of the stream after the last layer is what the output layer reads
        assert last["p"] == pytest.approx(float(ps[said]), abs=1e-5)
        assert [one["id"] for one in last["top"]] == ps.topk(3).indices.tolist()
    model = pipeline.model
    with torch.no_grad():
        vector = model.target.table[asked["tokens"]["target"][1]["id"]] * 4  # √16
        first = (model.decoder_norm(vector) @ model.output.table.T).softmax(-1)
    assert logit_lens[0]["p"] == pytest.approx(float(first[said]), abs=1e-5)
    assert logit_lens[0]["rank"] == 1 + int((first > first[said]).sum())


def test_the_first_of_equals_has_the_better_rank():
    numbers = torch.tensor([0.5, 0.2, 0.5, 0.1])
    assert [rank(numbers, id) for id in range(4)] == [1, 3, 2, 4]


def test_alignments_are_the_transducers(view, asked, pipeline, traces):
    answer = pipeline.with_attention(traces[asked["id"]].trace.answer, alignment=True, weights=True)
    found = view("alignment")
    np.testing.assert_allclose(found["matrix"], answer.alignment.numpy(), atol=1e-5)
    assert found["text"] == pharaoh(answer)
    assert found["text"] == " ".join(f"{i}-{j}" for i, j in found["pairs"])
    last = [one for one in asked["attentions"] if one["kind"] == "cross"][-1]
    weights = list(answer.weights.values())[-1]
    np.testing.assert_allclose(view("alignment", attention=last["name"])["matrix"], weights.mean(0), atol=1e-5)
    head = last["heads"] - 1
    np.testing.assert_allclose(view("alignment", attention=last["name"], head=head)["matrix"], weights[head], atol=1e-5)


def test_links_by_hand():
    matrix = torch.tensor([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1], [0.9, 0.0, 0.1]])
    assert links(matrix) == [[1, 0], [0, 2]]  # row 1 looked at the end; the last row says the end


def test_the_wall_measures_every_head(view, asked, traces):
    trace, heads = traces[asked["id"]].trace, view("wall")["heads"]
    assert [(one["attention"], one["head"]) for one in heads] == [
        (one["name"], head) for one in asked["attentions"] for head in range(one["heads"])
    ]
    for one in heads:
        rows = trace[one["attention"] + ".weights"][one["head"]].double().numpy()
        assert one["entropy"] == pytest.approx(np.mean([bits(row, base=2) for row in rows]), abs=1e-5)
        assert one["effect"] is None
        if one["kind"] == "cross":
            assert one["distance"] is None
            continue
        far = [sum(w * abs(q - k) for k, w in enumerate(row)) for q, row in enumerate(rows)]
        assert one["distance"] == pytest.approx(np.mean(far), abs=1e-5)


def test_entropy_and_distance_by_hand():
    weights = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]]])
    assert entropy(weights).tolist() == pytest.approx([1.0])  # 0, 1 and 2 bits
    assert distance(weights).tolist() == pytest.approx([(0 + 0.5 + (2 + 1 + 0 + 1) / 4) / 3])


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_walk_adds_up(view, asked, side, family, traces):
    trace, found = traces[asked["id"]].trace, view("walk", side=side, position=1)
    norms = {one["at"]: one["norm"] for one in found["residuals"]}
    for name, norm in norms.items():
        assert norm == pytest.approx(float(trace[name][1].double().norm()), rel=1e-5)
    if family == "recurrent":
        assert found["contributions"] == []
        expected = ["src.embed", "enc.0.h"] if side == "source" else ["tgt.embed", "dec.0.h", "attn.joined"]
        assert [name for name in norms if name in expected] == [name for name in norms if not name.startswith("out.")]
        return
    stack, parts = ("enc", ["self", "ffn"]) if side == "source" else ("dec", ["self", "cross", "ffn"])
    layers = 1 if side == "source" else 2
    names = [f"{stack}.{layer}.{part}.out" for layer in range(layers) for part in parts]
    assert [one["at"] for one in found["contributions"]] == names
    for before, one in zip(norms.values(), found["contributions"], strict=False):
        square = before**2 + one["norm"] ** 2 + 2 * before * one["norm"] * one["cosine"]  # the law of cosines
        assert norms[one["into"]] == pytest.approx(math.sqrt(square), rel=1e-4)


def test_a_sweep_cuts_each_head_before_the_output_matrix(web, ids, models, asked, family):
    found = web.post("/api/sweep", json={"model": ids[family], "source": SOURCE, "target": "AH B"}).json()
    pipeline = models[ids[family]].pipeline
    base = pipeline.score(SOURCE, "AH B").logp
    assert found["base"] == {"text": "AH B", "logp": pytest.approx(base, abs=1e-4)}
    assert len(found["heads"]) == sum(one["heads"] for one in asked["attentions"])
    for one in found["heads"]:
        assert one["effect"] == pytest.approx(found["base"]["logp"] - one["logp"], abs=1e-6)
    for one in found["heads"][::4]:
        silent = {"kind": "knock-out", "attention": one["attention"], "head": one["head"]}
        assert one["text"] == record(pipeline, SOURCE, edits=[silent]).answer.text
        assert one["logp"] == pytest.approx(record(pipeline, SOURCE, "AH B", edits=[silent]).answer.logp, abs=1e-4)
    if family == "recurrent":
        return
    stacks = {"enc": pipeline.model.encoder, "dec": pipeline.model.decoder}
    for one in found["heads"]:
        stack, layer, kind = one["attention"].split(".")
        out = getattr(stacks[stack][int(layer)], f"{kind}_attention").out.weight
        kept, columns = out.detach().clone(), slice(8 * one["head"], 8 * one["head"] + 8)
        try:
            out.data[:, columns] = 0
            assert one["logp"] == pytest.approx(pipeline.score(SOURCE, "AH B").logp, abs=1e-4)
        finally:
            out.data.copy_(kept)


def test_a_sweep_in_parts_is_the_same(web, ids, family, monkeypatch):
    ask = {"model": ids[family], "source": SOURCE}
    whole = web.post("/api/sweep", json=ask).json()
    monkeypatch.setattr(sweeping, "TOGETHER", 100)
    for one, other in zip(whole["heads"], web.post("/api/sweep", json=ask).json()["heads"], strict=True):
        assert one == {
            **other,
            "logp": pytest.approx(other["logp"]),
            "effect": pytest.approx(other["effect"], abs=1e-5),
        }


def test_the_graph_holds_every_tensor_and_every_parameter(web, ids, models, asked, family):
    found = web.get(f"/api/models/{ids[family]}/graph").json()
    model = models[ids[family]].pipeline.model
    names = [name for block in found["blocks"] for name in block["names"]]
    assert sorted(names) == sorted(tensor["name"] for tensor in asked["tensors"])
    shapes = {one["name"]: one["shape"] for block in found["blocks"] for one in block["parameters"]}
    assert shapes == {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    assert found["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert sum(block["count"] for block in found["blocks"]) == found["parameters"]  # nothing is tied here
    assert found["settings"]["width"] == model.settings.width
    for block in found["blocks"]:
        assert block["thumbnail"] in block["names"]
    if family == "transformer":
        kinds = {block["id"]: (block["stack"], block["layer"], block["kind"]) for block in found["blocks"]}
        assert kinds["dec.1.cross"] == ("decoder", 1, "attention")
        assert kinds["enc.0.ffn"] == ("encoder", 0, "ffn")
        assert kinds["src"] == ("source", None, "embedding")


def test_texts_are_cut_with_their_places(web, ids, family):
    ask = {"model": ids[family], "text": " aqn ", "side": "source"}
    found = web.post("/api/tokenize", json=ask).json()
    assert [(one["text"], one["start"], one["end"], one["special"]) for one in found["tokens"]] == [
        ("a", 1, 2, False),
        ("q", 2, 3, False),
        ("n", 3, 4, False),
    ]
    assert found["unknown"] == ["q"]
    target = web.post("/api/tokenize", json={**ask, "text": "Z IY", "side": "target"}).json()
    assert [(one["text"], one["start"]) for one in target["tokens"]] == [("Z", 0), ("IY", 2)]


def test_edits_come_back_with_a_label(web, ids, asked, family):
    name = asked["attentions"][-1]["name"]
    cut = {"kind": "knock-out", "attention": name, "head": 0, "by": "zero"}
    found = web.post("/api/trace", json={"model": ids[family], "source": SOURCE, "target": "Z", "edits": [cut]}).json()
    (edit,) = found["edits"]
    assert {key: edit[key] for key in cut} == cut
    assert name in edit["label"]
    assert found["check"] is None


def test_what_is_not_finite_travels_as_a_word():
    inf = math.inf
    assert (
        dumps({"a": [1.5, inf, (-inf, math.nan)], "\ud800": None}) == '{"a":[1.5,"inf",["-inf","nan"]],"\\ud800":null}'
    )
    assert dumps({"a": (1.5, 2)}) == '{"a":[1.5,2]}'
    assert extent(torch.tensor([-inf, 2.0, -3.0])) == (-3.0, 2.0)
    assert extent(torch.tensor([-inf])) == extent(torch.tensor([])) == (0.0, 0.0)


def test_the_palette_is_that_of_the_pictures(web):
    assert "matplotlib" not in web.get("/api/palette").text
    assert json.loads(web.get("/api/palette").text)["weights"]["levels"] == 256
    assert "regard.plots.palette" in sys.modules
