"""`regard explore hf:FOLDER`: the page opens only with the logits of the library."""

import pytest
import torch
from safetensors.torch import load

from regard.cli import main
from regard.errors import RegardError
from regard.explore.model_store import ModelStore
from regard.hub import import_cache, import_verification
from regard.model_location import find_model
from tests.explore.helpers import error_message, make_client
from tests.hub.hf_folders import hf_folder

FAMILIES = ["marian", "bart", "m2m_100", "t5"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("family", FAMILIES)
def test_traced_logits_are_those_of_the_library(tmp_path, family):
    folder, original = hf_folder(tmp_path / f"tiny-{family}", family)
    client = make_client(ModelStore.open([find_model(f"hf:{folder}", compared=True)]))
    model = client.get("/api/models").json()["models"][0]
    assert model["name"] == f"tiny-{family}"
    body = {"model": model["id"], "source": "w7 w9 w11", "target": "w8 w10"}
    found = client.post("/api/trace", json=body).json()
    library = found["check"]["library"]
    assert library["name"].startswith("transformers ")
    assert 0 <= library["max_delta"] < 1e-3
    query = {"name": "out.logits"}
    ours = load(client.get(f"/api/trace/{found['id']}/tensors", params=query).content)["out.logits"]
    source, target = (
        torch.tensor([[token["id"] for token in found["tokens"][side]]])
        for side in ("source", "target")
    )
    with torch.no_grad():
        theirs = original(input_ids=source, decoder_input_ids=target).logits[0]
    assert (ours - theirs).abs().max() < 1e-4 * max(1.0, float(theirs.abs().max()))


def test_a_model_that_differs_does_not_open(tmp_path, monkeypatch, capsys):
    folder, _ = hf_folder(tmp_path / "tiny", "marian")
    monkeypatch.setattr(import_verification, "TOLERANCE", -1.0)
    with pytest.raises(SystemExit) as ended:
        main(["explore", f"hf:{folder}", "--no-browser", "--port", "0"])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "the copy differs from the original, logits by up to" in err
    assert err.strip().count("\n") == 1  # the progress and the error


def test_without_the_library_it_does_not_open(tmp_path, monkeypatch):
    folder, _ = hf_folder(tmp_path / "tiny", "t5")
    monkeypatch.setattr(import_cache, "find_spec", lambda name: None)
    with pytest.raises(RegardError, match=r"must be compared with those of transformers, which is"):
        find_model(f"hf:{folder}", compared=True)


def test_an_unverified_import_is_verified_again(tmp_path, monkeypatch, capsys):
    folder, _ = hf_folder(tmp_path / "tiny", "marian")
    monkeypatch.setattr(import_verification, "find_spec", lambda name: None)
    plain = find_model(f"hf:{folder}")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    capsys.readouterr()
    assert find_model(f"hf:{folder}", compared=True) == plain
    assert "its logits differ from those of transformers" in capsys.readouterr().err
    assert find_model(f"hf:{folder}", compared=True) == plain
    assert capsys.readouterr().err == ""  # once


def test_large_vocabularies_are_sent_as_top_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.explore.export.MAX_VOCABULARY", 8)
    folder, _ = hf_folder(tmp_path / "tiny", "marian")
    client = make_client(ModelStore.open([find_model(f"hf:{folder}", compared=True)]))
    id = client.get("/api/models").json()["models"][0]["id"]
    found = client.post("/api/trace", json={"model": id, "source": "w7", "target": "w8"}).json()
    view = f"/api/trace/{found['id']}"
    response = client.get(f"{view}/tensors", params={"name": "out.logits"})
    error_message(response, 422, "large-vocabulary")
    names = load(client.get(f"{view}/tensors", params={"name": "dec.0.cross.weights"}).content)
    assert set(names) == {"dec.0.cross.weights"}
    top = client.get(f"{view}/output", params={"row": 0, "n": 5}).json()
    assert len(top["top"]) == 5
    assert top["vocabulary_size"] > 8
