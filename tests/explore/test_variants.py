"""Every position encoding, placement, cell and attention can be shown: all views answer, and the graph is whole."""

import pytest

from regard.config import RecurrentSettings, TransformerSettings
from regard.explore.frozen import reads
from regard.explore.models import Models
from regard.explore.requests import Ask
from regard.explore.traces import Traces
from tests.explore.small import client, saved

SMALL = {"width": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 8}
VARIANTS = [
    *(
        TransformerSettings(position=position, **SMALL)
        for position in ("none", "sinusoidal", "learned", "alibi", "t5", "shaw")
    ),
    TransformerSettings(position="distance", norm_order="post", norm="rms", activation="relu", kv_heads=1, **SMALL),
    TransformerSettings(position="learned", norm_order="post", activation="gelu", **SMALL),
    *(RecurrentSettings(width=6, attention=kind) for kind in ("none", "dot", "general", "concat")),
    RecurrentSettings(width=6, cell="lstm", encoder_layers=2, decoder_layers=2),
]


@pytest.mark.parametrize("settings", VARIANTS, ids=range(len(VARIANTS)))
def test_every_variant_is_shown(tmp_path, settings):
    models = Models.of([saved(tmp_path / "b", settings=settings)])
    traces, (model,) = Traces(models), models
    web, held = client(models, traces), traces.ask(Ask(model=model.id, source="aba", target="Z IY"))
    views = dict(reads(held))
    assert views["wall"]["heads"] or settings.kind == "recurrent"
    blocks = web.get(f"/api/models/{model.id}/graph").json()["blocks"]
    assert sorted(name for block in blocks for name in block["names"]) == sorted(held.trace.names)
    named = {one["name"] for block in blocks for one in block["parameters"]}
    assert named == {name for name, _ in model.pipeline.model.named_parameters()}
    if settings.kind == "transformer":
        seen = views["output?row=2&n=20"]
        end = next(one for one in seen["top"] if one["text"] == "< end >")
        assert seen["lens"][-1]["p"] == pytest.approx(end["p"], abs=1e-5)  # the stream ends where the output reads
        walked = views["walk?side=source&position=1"]
        added = ["enc.0.self.out", "enc.0.ffn.out"]
        first = ["src.position"] if settings.position in ("sinusoidal", "learned") else []
        assert [one["at"] for one in walked["contributions"]] == first + added
