"""Every position encoding, placement, cell and attention can be shown: all views answer, and the graph is whole."""

import pytest

from regard.config import Recurrent, Transformer
from regard.explore.frozen import reads
from regard.explore.models import Models
from regard.explore.requests import Ask
from regard.explore.traces import Traces
from tests.explore.small import client, saved

SMALL = {"width": 12, "heads": 2, "encoder": 1, "decoder": 1, "hidden": 8}
VARIANTS = [
    *(Transformer(position=position, **SMALL) for position in ("none", "sinusoidal", "learned", "alibi", "t5", "shaw")),
    Transformer(position="distance", placement="post", norm="rms", activation="relu", groups=1, **SMALL),
    Transformer(position="learned", placement="post", activation="gelu", **SMALL),
    *(Recurrent(width=6, attention=kind) for kind in ("none", "dot", "general", "concat")),
    Recurrent(width=6, cell="lstm", encoder=2, decoder=2),
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
    assert named == {name for name, _ in model.transducer.model.named_parameters()}
    if settings.kind == "transformer":
        seen = views["output?row=2&n=20"]
        end = next(one for one in seen["top"] if one["text"] == "< end >")
        assert seen["lens"][-1]["p"] == pytest.approx(end["p"], abs=1e-5)  # the stream ends where the output reads
        walked = views["walk?side=source&position=1"]
        added = ["enc.0.self.out", "enc.0.ffn.out"]
        first = ["src.position"] if settings.position in ("sinusoidal", "learned") else []
        assert [one["at"] for one in walked["contributions"]] == first + added
