"""Analyses of a trace against torch, NumPy and scikit-learn: logit lens, residual stream, PCA."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from regard import bundle
from regard.errors import RegardError
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.trace import (
    alignment_matrix,
    logit_lens,
    neighbours,
    pca_projection,
    record,
    residual_contributions,
    residual_norms,
)
from tests.trace.random_models import KINDS, random_model


@pytest.fixture(scope="module")
def trace():
    """Positions added, norms before the sums."""
    return record(random_model("learned"), "zebra", "Z IY B")


@pytest.mark.parametrize("kind", ["rotary", "learned", "alibi", "additive"])
def test_a_bundle_in_bfloat16_is_traced_in_float32(kind, tmp_path):
    own = random_model(kind).bundle
    own.model.to(torch.bfloat16)
    bundle.save(tmp_path / "b", own)
    pipeline = Pipeline(bundle.load(tmp_path / "b"))
    assert {weight.dtype for weight in pipeline.model.parameters()} == {torch.bfloat16}
    trace = record(pipeline, "zebra", "Z IY B")
    assert {trace[name].dtype for name in trace.names} == {torch.float32}
    assert 1e-5 < trace.check < 0.5  # the fast path is the one that rounds
    seen = logit_lens(trace, 2)
    assert bool(seen) == (KINDS[kind].kind == "transformer")
    model = pipeline.model.double()
    for name, ps in seen.items():
        vector = trace[name][2:3].double()
        with torch.no_grad():
            logits = model.project(vector if name == "dec.norm" else model.decoder_norm(vector))
        torch.testing.assert_close(ps, logits[0].softmax(-1).float(), rtol=1e-4, atol=1e-6)
    again = record(Pipeline(own), "zebra")  # its own answer too
    assert again.answer.ids == Pipeline(own)("zebra").ids


@torch.no_grad()
def test_the_logit_lens_starts_after_the_embedding_norm():
    pipeline = random_model("bart")  # post-norm, so no other norm is applied
    trace = record(pipeline, "zebra", "Z IY B")
    seen = logit_lens(trace, 1)
    assert list(seen) == ["tgt.norm", "dec.0.norm1", "dec.0.norm2", "dec.0.norm3"]
    vector = pipeline.model.target(Ragged.of([trace.numbers["tgt.ids"]])).values[1:2]
    expected = pipeline.model.project(vector)[0].softmax(-1)
    torch.testing.assert_close(seen["tgt.norm"], expected)


def test_the_logit_lens_reads_edited_numbers(trace):
    given = torch.linspace(-1, 1, 12).expand(4, 12)
    changed = record(
        random_model("learned"),
        "zebra",
        "Z IY B",
        edits=[{"kind": "patch", "name": "dec.norm", "values": given.tolist()}],
    )
    before, after = logit_lens(trace, 1), logit_lens(changed, 1)
    assert list(before) == list(after)
    torch.testing.assert_close(after["dec.norm"], changed["out.logprobs"][1].exp())
    torch.testing.assert_close(
        after["dec.0.resid3"], before["dec.0.resid3"]
    )  # through the model's norm, not the patch
    assert not torch.allclose(after["dec.norm"], before["dec.norm"])


@pytest.mark.parametrize("side", ["source", "target"])
def test_contributions_lead_from_each_sum_to_the_next(trace, side):
    begin, parts = (
        ("src", ["self", "ffn"]) if side == "source" else ("tgt", ["self", "cross", "ffn"])
    )
    stack, layers = ("enc", 2) if side == "source" else ("dec", 1)
    added, norms = residual_contributions(trace, side, 2), residual_norms(trace, side, 2)
    blocks = [f"{stack}.{layer}.{part}.out" for layer in range(layers) for part in parts]
    assert [one.name for one in added] == [f"{begin}.position", *blocks]
    assert [one.into for one in added] == list(norms)
    total = trace[f"{begin}.embed"][2].double().numpy()
    for one in added:
        vector = trace[one.name][2].double().numpy()
        assert one.norm == pytest.approx(np.linalg.norm(vector), rel=1e-5)
        assert one.cosine == pytest.approx(
            vector @ total / np.linalg.norm(vector) / np.linalg.norm(total), abs=1e-5
        )
        total = total + vector
        assert norms[one.into] == pytest.approx(np.linalg.norm(total), rel=1e-5)


def test_a_patched_sum_does_not_change_contributions(trace):
    patch = {"kind": "patch", "name": "dec.0.resid1", "values": [[0.0] * 11 + [3.0]] * 4}
    changed = record(random_model("learned"), "zebra", "Z IY B", edits=[patch])
    assert (
        residual_contributions(changed, "target", 1)[:2]
        == residual_contributions(trace, "target", 1)[:2]
    )
    assert residual_norms(changed, "target", 1)["dec.0.resid1"] == 3


def test_a_recurrent_model_has_no_residual_stream():
    trace = record(random_model("additive"), "zebra", "Z IY B")
    states = ["tgt.embed", "attn.joined", "dec.0.h", "dec.1.h", "out.mixed", "out.readout"]
    found = residual_norms(trace, "target", 1)
    assert found == pytest.approx({name: float(np.linalg.norm(trace[name][1])) for name in states})
    assert list(residual_norms(trace, "source", 0)) == ["src.embed", "enc.0.h"]
    assert (residual_contributions(trace, "target", 1), logit_lens(trace, 1)) == ([], {})


@pytest.mark.parametrize("kind", ["learned", "general"])
def test_neighbours_agree_with_scikit_learn(kind):
    trace = record(random_model(kind), "zebra", "Z IY B")
    table = trace.pipeline.model.target.table.detach().numpy()
    distances, ids = (
        NearestNeighbors(metric="cosine").fit(table).kneighbors(table[[trace.target[1].id]], 4)
    )
    found = neighbours(trace, "target", 1, 3)
    assert [id for id, _ in found] == ids[0, 1:].tolist()
    assert [cosine for _, cosine in found] == pytest.approx(
        (1 - distances[0, 1:]).tolist(), abs=1e-6
    )
    assert len(neighbours(trace, "target", 1, 900)) == len(table) - 1
    assert pca_projection(trace, "target").ids == list(range(len(table)))


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda t: logit_lens(t, 4), "position 4 is not one of the target's 0 to 3"),
        (
            lambda t: residual_norms(t, "source", -1),
            "position -1 is not one of the source's 0 to 5",
        ),
        (
            lambda t: residual_contributions(t, "left", 0),
            "side must be 'source' or 'target'; got 'left'",
        ),
        (lambda t: neighbours(t, "target", 9), "position 9 is not one of the target's 0 to 3"),
        (lambda t: pca_projection(t, "both"), "side must be 'source' or 'target'; got 'both'"),
        (lambda t: alignment_matrix(t, "dec.0.cross", 4), "dec.0.cross has heads 0 to 3; got 4"),
        (lambda t: t.program.attention("attn"), "unknown attention 'attn'"),
    ],
)
def test_errors_are_one_line(trace, look, message):
    with pytest.raises(RegardError, match=message) as error:
        look(trace)
    assert "\n" not in str(error.value)
