"""Views of a trace, for both families, against independently computed numbers."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy
from sklearn.decomposition import PCA

from regard.commands.formats import format_alignment
from regard.ragged import Ragged
from regard.search import Beam
from regard.text import BEGIN, END
from regard.trace import (
    agreement,
    alignment_matrix,
    beam_tree,
    distance,
    entropy,
    links,
    occlusion,
    rank,
    record,
    residual_analysis,
)
from tests.explore.helpers import SOURCE

FORCE = {"kind": "force", "step": 0, "token": 4}
TEMPERATURE = {"kind": "temperature", "value": 2.0}


@pytest.fixture(scope="module")
def logits(pipeline, described):
    """The logits of the model itself for this output, all rows at once."""
    prefix = [BEGIN, *(token["id"] for token in described["next_tokens"][:-1])]
    source = Ragged.of([torch.tensor([*pipeline.bundle.source.encode(SOURCE), END])])
    with torch.no_grad():
        return pipeline.model(source, Ragged.of([torch.tensor(prefix)])).values


@pytest.fixture(scope="module")
def edited(client, ids, family):
    body = {"model": ids[family], "source": SOURCE, "edits": [TEMPERATURE]}
    return client.post("/api/trace", json=body).json()


@pytest.mark.parametrize("side", ["source", "target"])
def test_neighbours_are_the_nearest_by_cosine(view, described, pipeline, side):
    table = getattr(pipeline.model, side).table.detach().double().numpy()
    token = described["tokens"][side][1]
    found = view("neighbours", side=side, position=1, n=4)
    assert found["token"] == token
    own = table[token["id"]]
    norms = np.sqrt((table * table).sum(1) * (own @ own))
    cosines = {id: float(cosine) for id, cosine in enumerate(table @ own / norms)}
    del cosines[token["id"]]
    best = sorted(cosines, key=cosines.__getitem__, reverse=True)[:4]
    nearest = found["neighbours"]
    assert [one["id"] for one in nearest] == best
    expected = [cosines[id] for id in best]
    assert [one["cosine"] for one in nearest] == pytest.approx(expected, abs=1e-6)
    assert nearest[0]["text"] == getattr(pipeline.bundle, side).label(best[0])
    assert len(view("neighbours", side=side, position=1, n=900)["neighbours"]) == len(table) - 1


def test_embedding_plane_is_a_pca(view, pipeline):
    table = pipeline.model.source.table.detach().double().numpy()
    found = view("embedding-space", side="source")
    truth = PCA(2).fit(table)
    variance = truth.explained_variance_ratio_.tolist()
    assert found["explained_variance"] == pytest.approx(variance, rel=1e-5)
    spreads = [point["spread"] for point in found["points"]]
    assert spreads == pytest.approx(((table - table.mean(0)) ** 2).sum(1).tolist(), rel=1e-9)
    points = np.array([[point["x"], point["y"]] for point in found["points"]])
    np.testing.assert_allclose(np.abs(points), np.abs(truth.transform(table)), atol=1e-5)
    ids = [*pipeline.bundle.source.encode(SOURCE), END]
    for point in found["points"]:
        assert point["positions"] == [i for i, id in enumerate(ids) if id == point["id"]]


def test_large_tables_show_tokens_and_neighbours(view, monkeypatch):
    monkeypatch.setattr(residual_analysis, "WHOLE", 3)
    monkeypatch.setattr(residual_analysis, "AROUND", 1)
    points = view("embedding-space", side="target")["points"]
    own = [point for point in points if point["positions"]]
    near = {
        view("neighbours", side="target", position=point["positions"][0], n=1)["neighbours"][0][
            "id"
        ]
        for point in own
    }
    assert {point["id"] for point in points} == {point["id"] for point in own} | near


@pytest.mark.parametrize(("rows", "width"), [(1, 4), (3, 1), (5, 2), (4, 4)])
def test_plane_of_few_vectors(rows, width):
    places, explained = residual_analysis.pca_plane(torch.randn(rows, width))
    assert places.shape == (rows, 2)
    assert len(explained) == 2
    assert 0 <= sum(explained) <= 1 + 1e-9


def test_output_ranks_the_vocabulary(view, described, logits, pipeline):
    row = len(described["next_tokens"]) - 2
    found, logps = view("output", row=row, n=3), logits[row].double().log_softmax(-1)
    best, top = logps.topk(3), found["top"]
    assert [one["id"] for one in top] == best.indices.tolist()
    assert [one["logp"] for one in top] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert [one["p"] for one in top] == pytest.approx(best.values.exp().tolist(), abs=1e-5)
    expected = logits[row][best.indices].tolist()
    assert [one["logit"] for one in top] == pytest.approx(expected, abs=1e-4)
    assert found["entropy"] == pytest.approx(scipy_entropy(logps.exp().numpy(), base=2), abs=1e-4)
    assert (found["vocabulary_size"], found["token"]) == (len(logps), None)
    token = view("output", row=row, word="IY")["token"]
    (id,) = pipeline.bundle.target.encode("IY")
    assert (token["id"], token["text"]) == (id, "IY")
    assert token["rank"] == sorted(logps.tolist(), reverse=True).index(float(logps[id])) + 1
    assert token["logp"] == pytest.approx(float(logps[id]), abs=1e-4)


def test_logit_lens_reads_the_residual_stream(view, described, logits, pipeline, family):
    lens = view("output", row=1)["logit_lens"]
    if family == "recurrent":
        assert lens == []
        return
    residuals = [f"dec.{layer}.resid{part}" for layer in (0, 1) for part in (1, 2, 3)]
    assert [one["tensor"] for one in lens] == ["tgt.sum", *residuals, "dec.norm"]
    following = described["next_tokens"][1]["id"]
    ps = logits[1].softmax(-1)
    for last in lens[-2:]:  # after the last layer the lens sees what the output layer sees
        assert last["p"] == pytest.approx(float(ps[following]), abs=1e-5)
        assert [one["id"] for one in last["top"]] == ps.topk(3).indices.tolist()
    model = pipeline.model
    with torch.no_grad():
        vector = model.target.table[described["tokens"]["target"][1]["id"]] * 4  # √16
        first = (model.decoder_norm(vector) @ model.output.table.T).softmax(-1)
    assert lens[0]["p"] == pytest.approx(float(first[following]), abs=1e-5)
    assert lens[0]["rank"] == 1 + int((first > first[following]).sum())


def test_rank_prefers_the_first_of_equals():
    numbers = torch.tensor([0.5, 0.2, 0.5, 0.1])
    assert [rank(numbers, id) for id in range(4)] == [1, 3, 2, 4]


def test_alignment_is_that_of_the_pipeline(view, described, pipeline, traces):
    answer = pipeline.with_attention(
        traces[described["id"]].trace.answer, alignment=True, weights=True
    )
    found = view("alignment")
    np.testing.assert_allclose(found["matrix"], answer.alignment.numpy(), atol=1e-5)
    assert found["text"] == format_alignment(answer)
    assert found["text"] == " ".join(f"{i}-{j}" for i, j in found["pairs"])
    last = [one for one in described["attentions"] if one["kind"] == "cross"][-1]
    weights = list(answer.weights.values())[-1]
    mean = view("alignment", attention=last["name"])["matrix"]
    np.testing.assert_allclose(mean, weights.mean(0), atol=1e-5)
    head = last["heads"] - 1
    one_head = view("alignment", attention=last["name"], head=head)["matrix"]
    np.testing.assert_allclose(one_head, weights[head], atol=1e-5)


def test_links_by_hand():
    rows = [[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1], [0.9, 0.0, 0.1]]
    assert links(torch.tensor(rows)) == [[1, 0], [0, 2]]  # row 1 prefers the end; row 3 is the end


def test_head_statistics_of_every_head(view, described, traces):
    trace, heads = traces[described["id"]].trace, view("heads")["heads"]
    expected = [
        (one["name"], head) for one in described["attentions"] for head in range(one["heads"])
    ]
    assert [(one["attention"], one["head"]) for one in heads] == expected
    for one in heads:
        rows = trace[one["attention"] + ".weights"][one["head"]].double().numpy()
        mean = np.mean([scipy_entropy(row, base=2) for row in rows])
        assert one["entropy"] == pytest.approx(mean, abs=1e-5)
        assert one["effect"] is None
        if one["kind"] == "cross":
            assert one["distance"] is None
            continue
        far = [sum(w * abs(q - k) for k, w in enumerate(row)) for q, row in enumerate(rows)]
        assert one["distance"] == pytest.approx(np.mean(far), abs=1e-5)


def test_patterns_of_every_head(view, described, traces):
    trace, found = traces[described["id"]].trace, view("heads")
    for one in found["heads"]:
        weights = trace[one["attention"] + ".weights"][one["head"]].double().numpy()
        rows = []
        for query, row in enumerate(found["patterns"][one["kind"]][one["pattern"]]):
            if row is not None:
                first, stop, uniform = row
                seen = query + 1 if one["kind"] == "decoder" else weights.shape[1]
                assert uniform == pytest.approx((stop - first) / seen)
                rows.append((weights[query, first:stop].sum() - uniform) / (1 - uniform))
        assert one["score"] == pytest.approx(np.mean(rows), abs=1e-6)
        assert one["named"] == (one["score"] >= 0.5)


def test_entropy_and_distance_by_hand():
    weights = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]]])
    assert entropy(weights).tolist() == pytest.approx([1.0])  # 0, 1 and 2 bits
    assert distance(weights).tolist() == pytest.approx([(0 + 0.5 + (2 + 1 + 0 + 1) / 4) / 3])


@pytest.mark.parametrize("side", ["source", "target"])
def test_contributions_add_up_to_the_residual(view, described, side, family, traces):
    trace = traces[described["id"]].trace
    found = view("residual-stream", side=side, position=1)
    norms = {one["tensor"]: one["norm"] for one in found["residuals"]}
    for name, norm in norms.items():
        assert norm == pytest.approx(float(trace[name][1].double().norm()), rel=1e-5)
    source = side == "source"
    if family == "recurrent":
        assert found["contributions"] == []
        states = ["src.embed", "enc.0.h"] if source else ["tgt.embed", "dec.0.h", "attn.joined"]
        inner = [name for name in norms if not name.startswith("out.")]
        assert [name for name in norms if name in states] == inner
        return
    stack, parts = ("enc", ["self", "ffn"]) if source else ("dec", ["self", "cross", "ffn"])
    layers = 1 if source else 2
    names = [f"{stack}.{layer}.{part}.out" for layer in range(layers) for part in parts]
    assert [one["tensor"] for one in found["contributions"]] == names
    for before, one in zip(norms.values(), found["contributions"], strict=False):
        mixed = 2 * before * one["norm"] * one["cosine"]  # the law of cosines
        square = before**2 + one["norm"] ** 2 + mixed
        assert norms[one["into"]] == pytest.approx(math.sqrt(square), rel=1e-4)


def test_occlusion_is_that_of_the_library(view, pipeline, described):
    found = view("occlusion")
    trace = record(pipeline, SOURCE, search=Beam(3))
    assert [one["id"] for one in described["next_tokens"]] == [one.id for one in trace.following]
    truth = occlusion(pipeline, trace)
    np.testing.assert_allclose(found["effects"], truth.numpy(), atol=1e-4)
    cross = [one["name"] for one in described["attentions"] if one["kind"] == "cross"]
    names = ["mean", *cross]
    assert list(found["rank_correlations"]) == names
    expected = {name: agreement(alignment_matrix(trace, name), truth) for name in names}
    assert found["rank_correlations"] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("beam", [1, 3])
def test_beam_tree_is_that_of_the_library(view, pipeline, described, beam):
    found = view("beam-tree", beam=beam)
    nodes, made = found["nodes"], beam_tree(pipeline, SOURCE, Beam(beam))
    fields = ("number", "parent", "id", "pruned_by")
    assert [tuple(node[field] for field in fields) for node in nodes] == [
        (node.number, node.parent, node.token, node.pruned_by) for node in made.nodes
    ]
    assert [node["status"] for node in nodes] == [node.status for node in made.nodes]
    totals = [node.total for node in made.nodes]
    assert [node["total"] for node in nodes] == pytest.approx(totals)
    assert (found["beam"], found["outputs"]) == (beam, made.answers)
    best = nodes[found["outputs"][0]]
    assert best["prefix"] == pipeline(SOURCE, pipeline.search(beam=beam)).text
    if beam == 3:
        assert best["prefix"] == described["output"]["text"]
    special = [BEGIN in made.ids(node.number) for node in made.nodes]  # not expressible as text
    assert [node["retokenizes"] for node in nodes] == [not one for one in special]
    assert found["divisors"] == [1.0] * (1 + max(node.step for node in made.nodes))


@pytest.mark.parametrize("name", ["occlusion", "beam-tree"])
def test_edited_models_have_no_occlusion_or_beam(client, edited, name):
    response = client.get(f"/api/trace/{edited['id']}/{name}")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "edited")
    assert response.json()["error"]["message"].endswith("; remove the edits")


def test_forced_token_steers_the_beam_tree(client, ids, family, pipeline):
    beam = {"beam": 3}
    body = {"model": ids[family], "source": SOURCE, "edits": [FORCE], "decoding": beam}
    trace = client.post("/api/trace", json=body).json()
    label = pipeline.bundle.target.label(FORCE["token"])
    assert [edit["label"] for edit in trace["edits"]] == [f"“{label}” forced at step 0"]
    tree = client.get(f"/api/trace/{trace['id']}/beam-tree", params=beam).json()
    assert [node["id"] for node in tree["nodes"] if node["step"] == 0] == [FORCE["token"]]
    assert max(node["step"] for node in tree["nodes"]) > 0
    best = tree["nodes"][tree["outputs"][0]]
    assert best["prefix"] == trace["output"]["text"]
    assert best["total"] == pytest.approx(trace["output"]["logp"], abs=1e-4)


def test_beam_size_is_limited(client, described):
    path = f"/api/trace/{described['id']}/beam-tree"
    assert client.get(path, params={"beam": 17}).status_code == 422
