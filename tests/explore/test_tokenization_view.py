"""The tokenization of a trace: words, merges and the position of the first token."""

import json

import pytest

from regard.explore.model_store import ModelStore
from tests.explore.helpers import BPE_SOURCE, make_client, save_bpe_bundle


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    """A client of a model whose tokens come from merges."""
    folder = save_bpe_bundle(tmp_path_factory.mktemp("bpe") / "bpe")
    models = ModelStore.open([folder])
    model = next(iter(models))
    return make_client(models), model.id, model.pipeline.bundle.source


def fetch(client, model: str, side: str, **request):
    trace = client.post("/api/trace", json={"model": model, "source": BPE_SOURCE, **request}).json()
    response = client.get(f"/api/trace/{trace['id']}/tokenization", params={"side": side})
    assert response.status_code == 200, response.text
    return trace, response.json()


def replay(word) -> list[str]:
    """The labels after all merges."""
    symbols = [label for _, label in word["symbols"]]
    for _, at, _, label in word["merges"]:
        assert "".join(symbols[at : at + 2]) == label
        symbols[at : at + 2] = [label]
    return symbols


@pytest.mark.parametrize("side", ["source", "target"])
def test_replayed_merges_give_the_tokens_of_the_trace(bpe, side):
    client, model, tokenizer = bpe
    trace, found = fetch(client, model, side, target="slower towers")
    assert found["method"] == "bpe"
    tokens = [token for token in trace["tokens"][side] if not token["special"]]
    assert found["first"] == tokens[0]["position"]
    shown = [token for word in found["words"] for token in word["tokens"]]
    assert [token["id"] for token in shown] == [token["id"] for token in tokens]
    assert [text for word in found["words"] for text in replay(word)] == [
        token["text"] for token in tokens
    ]
    assert any(word["merges"] for word in found["words"])
    pairs = {(left, right): rank for word in found["words"] for left, right, rank in word["ranks"]}
    merges = json.loads(tokenizer.library.to_str())["model"]["merges"]
    assert all(merges[rank] == list(pair) for pair, rank in pairs.items())


def test_letters_have_no_merges(client, ids):
    trace = client.post("/api/trace", json={"model": ids["transformer"], "source": "zebra"}).json()
    found = client.get(f"/api/trace/{trace['id']}/tokenization", params={"side": "source"}).json()
    assert found["method"] == "characters"
    assert [token["text"] for word in found["words"] for token in word["tokens"]] == list("zebra")


def test_one_row_of_logits(client, described):
    from safetensors.numpy import load

    path = f"/api/trace/{described['id']}"
    whole = load(client.get(f"{path}/tensors", params={"name": "out.logits"}).content)["out.logits"]
    row = client.get(f"{path}/logits", params={"row": 1})
    assert row.content == whole[1].astype("<f4").tobytes()
    assert client.get(f"{path}/logits", params={"row": len(whole)}).status_code == 422
