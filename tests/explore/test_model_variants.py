"""All views work for every position encoding, norm order, cell and attention."""

import pytest

from regard.config import RecurrentSettings, TransformerSettings
from regard.explore.messages import TraceRequest
from regard.explore.model_store import ModelStore
from regard.explore.offline_html import all_views
from regard.explore.trace_store import TraceStore
from tests.explore.helpers import error_message, make_client, save_bundle

SMALL = {"width": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 8}
POSITIONS = ("none", "sinusoidal", "learned", "alibi", "t5", "shaw")
SCORES = ("dot", "general", "additive")
POST_RMS = {"norm_order": "post", "norm": "rms", "activation": "relu", "kv_heads": 1}
BART = {"norm_order": "post", "embedding_norm": True, "output_bias": True, "activation": "silu"}
T5 = {"activation": "geglu", "biases": False, "dim": 4, "norm": "rms", "embedding_scale": 1.0}
VARIANTS = [
    *(TransformerSettings(position=position, **SMALL) for position in POSITIONS),
    TransformerSettings(position="distance", **POST_RMS, **SMALL),
    TransformerSettings(position="learned", norm_order="post", activation="gelu", **SMALL),
    TransformerSettings(position="learned", **BART, **SMALL),
    TransformerSettings(position="t5", **T5, **SMALL),
    RecurrentSettings(width=6, attention="none"),
    *(RecurrentSettings(width=6, attention="luong", score=score) for score in SCORES),
    RecurrentSettings(width=6, cell="lstm", encoder_layers=2, decoder_layers=2),
]


@pytest.mark.parametrize("settings", VARIANTS, ids=range(len(VARIANTS)))
def test_every_variant_has_all_views(tmp_path, settings):
    models = ModelStore.open([save_bundle(tmp_path / "b", settings=settings)])
    (model,) = models
    traces = TraceStore(models)
    stored = traces.compute(TraceRequest(model=model.id, source="aba", target="Z IY"))
    views = dict(all_views(stored))
    assert views["heads"]["heads"] or settings.kind == "recurrent"
    blocks = make_client(models, traces).get(f"/api/models/{model.id}/graph").json()["blocks"]
    names = [name for block in blocks for name in block["names"]]
    assert sorted(names) == sorted(stored.trace.names)
    parameters = {one["name"] for block in blocks for one in block["parameters"]}
    assert parameters == {name for name, _ in model.pipeline.model.named_parameters()}
    if settings.kind == "recurrent":
        return
    output = views["output?row=2&n=20"]
    end = next(one for one in output["top"] if one["text"] == "< end >")
    assert output["logit_lens"][-1]["p"] == pytest.approx(end["p"], abs=1e-5)
    stream = views["residual-stream?side=source&position=1"]
    added = ["src.position"] if settings.position in ("sinusoidal", "learned") else []
    added += ["enc.0.self.out", "enc.0.ffn.out"]
    assert [one["tensor"] for one in stream["contributions"]] == added


def test_models_without_attention_have_no_alignment(tmp_path):
    settings = RecurrentSettings(width=10, attention="none", cell="lstm")
    models = ModelStore.open([save_bundle(tmp_path / "b", settings=settings)])
    (model,) = models
    client, body = make_client(models), {"model": model.id, "source": "aba"}
    described = client.post("/api/trace", json=body).json()
    assert (model.entry["heads"], described["attentions"]) == (0, [])
    for view in ("alignment", "occlusion"):
        response = client.get(f"/api/trace/{described['id']}/{view}")
        assert error_message(response, 422, "no-attention")
    heads = client.get(f"/api/trace/{described['id']}/heads").json()
    assert heads == {"heads": [], "patterns": {}}
    ablation = client.post("/api/head-ablation", json=body).json()
    assert ablation["base"]["text"] == described["output"]["text"]
    assert ablation["heads"] == []
