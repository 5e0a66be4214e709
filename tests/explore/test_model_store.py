"""The served models: their description, damaged bundles, and the queue of computations."""

import json
import shutil
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.bundle_mutations import read_files, write_bundle
from regard.errors import RegardError
from regard.explore import model_store
from regard.explore.model_store import QUEUE, ModelStore, ServedModel
from regard.pretrained import resolve_model
from tests.explore.helpers import error_message, make_client, save_bundle


def test_list_of_models_describes_the_files(client, folders):
    first, second = client.get("/api/models").json()["models"]
    weights = load_file(folders["transformer"] / "weights.safetensors")
    manifest = json.loads((folders["transformer"] / "manifest.json").read_text())
    sha8 = manifest["files"]["weights.safetensors"]["sha256"][:8]
    on = "1,234 held-out examples"
    assert first == {
        "id": f"transformer@{sha8}",
        "name": "transformer",
        "sha8": sha8,
        "title": "transformer (Transformer)",
        "family": "transformer",
        "included": False,
        "task": "symbols",
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "position": "rotary",
        "layers": {"encoder": 1, "decoder": 2},
        "heads": 2,
        "width": 16,
        "quality": [
            {"metric": "symbol error rate", "value": 6.12, "unit": "%", "on": on},
            {"metric": "sequence error rate", "value": 25.0, "unit": "%", "on": on},
        ],
        "example": "zebra",
        "examples": ["zebra"],
        "input": {
            "source": {"alphabet": "abdenorz", "case": "lower"},
            "target": {"alphabet": " ABEHINYZ", "case": "upper"},
        },
        "tokenizers": second["tokenizers"],  # made of the same texts
        "max_tokens": 512,
        "film": False,
    }
    shown = {name: second[name] for name in ("family", "position", "heads", "width", "layers")}
    assert shown == {
        "family": "recurrent",
        "position": None,
        "heads": 1,
        "width": 10,
        "layers": {"encoder": 1, "decoder": 1},
    }


def test_without_folders_the_included_models_open(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(model_store, "MODELS", tmp_path)
    with pytest.raises(RegardError, match=r"^this installation has no models; pass one"):
        ModelStore.open()
    shutil.copytree(folders["recurrent"], tmp_path / "spelling")
    card = {
        "title": "Spelling",
        "quality": [{"metric": "phone error", "value": 6.1, "unit": "%", "on": "words"}],
    }
    files = read_files(tmp_path / "spelling") | {"card.json": json.dumps(card).encode()}
    del files["manifest.json"]
    write_bundle(tmp_path / "spelling", files)
    (one,) = ModelStore.open()
    assert (one.name, one.included) == ("spelling", True)
    assert (one.entry["title"], one.entry["quality"]) == ("Spelling", card["quality"])


def test_bundle_of_a_run_has_the_name_of_the_run(tmp_path):
    save_bundle(tmp_path / "demo/bundle")
    for folder in (tmp_path / "demo/bundle", tmp_path / "demo"):
        (one,) = ModelStore.open([folder])
        assert one.name == "demo"


def damage(folder, name, content):
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "config.json' has 1 bytes instead of"),
        ("manifest.json", b"[]", "manifest.json' is invalid in this bundle: it is not a JSON obj"),
        ("manifest.json", b'{"files": {}}', "it does not list 'config.json'"),
        ("manifest.json", b'{"files": 3}', "it lists no files"),
        ("card.json", b"\xff", "card.json' has 1 bytes instead of"),
        ("weights.safetensors", b"", "weights.safetensors' has 0 bytes instead of"),
    ],
)
def test_damage_is_reported_before_serving(tmp_path, folders, name, content, message):
    folder = shutil.copytree(folders["transformer"], tmp_path / "b")
    with pytest.raises(RegardError) as error:
        ModelStore.open([damage(folder, name, content)])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_damaged_weights_are_reported_on_use(tmp_path, folders):
    folder = shutil.copytree(folders["transformer"], tmp_path / "b")
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    models = ModelStore.open([folder])
    damage(folder, "weights.safetensors", content)
    with pytest.raises(RegardError, match="was altered: its sha256 differs"):
        ModelStore.open([folder])
    body = {"model": next(iter(models)).id, "source": "aba"}
    for _ in range(2):
        response = make_client(models).post("/api/trace", json=body)
        message = error_message(response, 500, "bundle-damaged")
        assert message.endswith("was altered: its sha256 differs; copy the bundle again")


@pytest.mark.parametrize("name", ["missing", "file", "empty"])
def test_folders_that_are_not_bundles(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RegardError, match=r"pass a folder written by `regard train`$"):
        ModelStore.open([tmp_path / name])


def test_model_loads_once_and_computes_serially(folders):
    model = ServedModel(folders["transformer"])
    inside, seen, most = 0, [], []

    def work():
        nonlocal inside
        with model.exclusive() as pipeline:
            inside += 1
            most.append(inside)
            seen.append(pipeline)
            torch.ones(3).sum()
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(QUEUE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(seen) == QUEUE
    assert len({id(one) for one in seen}) == 1


def test_full_queue_returns_429_with_retry_after(folders):
    models = ModelStore.open([folders["transformer"]])
    (model,) = models
    release, entered = threading.Event(), threading.Semaphore(0)

    def wait():
        entered.release()
        with model.exclusive():
            release.wait(180)

    threads = [threading.Thread(target=wait) for _ in range(QUEUE)]
    for thread in threads:
        thread.start()
        entered.acquire()
    deadline = time.monotonic() + 180
    while model._queued < QUEUE:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    response = make_client(models).post("/api/trace", json={"model": model.id, "source": "aba"})
    release.set()
    for thread in threads:
        thread.join()
    assert error_message(response, 429, "busy")
    assert response.headers["retry-after"] == "1"
    with model.exclusive() as pipeline:
        assert pipeline("aba").source == "aba"


def test_included_models_have_quality_and_an_example():
    models = ModelStore.open()
    outputs = {
        "english-german": "Ich habe sie noch nie zuvor gesehen.",
        "english-german-recurrent": "Ich habe sie noch nie gesehen.",
        "spelling": "AH T EH N SH AH N",
        "spelling-recurrent": "AH T EH N SH AH N",
    }
    assert [model.name for model in models] == list(outputs)  # the page opens on the first
    for model in models:
        assert model.included
        assert model.entry["quality"]
        body = {"model": model.id, "source": model.entry["example"]}
        described = make_client(models).post("/api/trace", json=body).json()
        assert described["output"]["text"] == outputs[model.name]
        assert described["check"]["max_delta"] < 1e-4


def test_a_model_opened_by_name_is_an_included_one(tmp_path):
    folder = resolve_model("spelling")
    shutil.copytree(folder, tmp_path / "copy")
    models = ModelStore.open([folder, tmp_path / "copy"])
    assert [model.included for model in models] == [True, False]
