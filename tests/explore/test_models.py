"""Which models are offered, and what is said of one that cannot be."""

import json
import shutil
import threading

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import RegardError
from regard.explore import models as offering
from regard.explore.models import QUEUE, Models, Offered
from tests.explore.small import client, refused, saved


def test_the_list_says_what_the_files_say(web, folders):
    answer = web.get("/api/models").json()
    first, second = answer["models"]
    weights = load_file(folders["transformer"] / "weights.safetensors")
    manifest = json.loads((folders["transformer"] / "manifest.json").read_text())
    sha8 = manifest["files"]["weights.safetensors"]["sha256"][:8]
    assert first == {
        "id": f"transformer@{sha8}",
        "name": "transformer",
        "sha8": sha8,
        "title": "transformer (Transformer)",
        "family": "transformer",
        "shipped": False,
        "task": "symbols",
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "position": "rotary",
        "layers": {"encoder": 1, "decoder": 2},
        "heads": 2,
        "width": 16,
        "quality": [
            {"metric": "symbol error", "value": 6.12, "unit": "%", "on": "1,234 held-out questions"},
            {"metric": "wrong answers", "value": 25.0, "unit": "%", "on": "1,234 held-out questions"},
        ],
        "example": "zebra",
        "limit": 256,
    }
    told = {name: second[name] for name in ("family", "position", "heads", "width", "layers")}
    assert told == {
        "family": "recurrent",
        "position": None,
        "heads": 1,
        "width": 10,
        "layers": {"encoder": 1, "decoder": 1},
    }


def test_without_a_bundle_those_that_come_along_are_offered(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(offering, "MODELS", tmp_path)
    with pytest.raises(RegardError, match=r"^no model came with this installation; give a bundle"):
        Models.of()
    shutil.copytree(folders["recurrent"], tmp_path / "spelling")
    card = {"title": "Spelling", "quality": [{"metric": "phone error", "value": 6.1, "unit": "%", "on": "words"}]}
    (tmp_path / "spelling/card.json").write_text(json.dumps(card))
    (one,) = Models.of()
    assert (one.name, one.shipped) == ("spelling", True)
    assert (one.entry["title"], one.entry["quality"]) == ("Spelling", card["quality"])


def test_the_bundle_of_a_run_goes_by_the_name_of_the_run(tmp_path):
    saved(tmp_path / "demo/bundle")
    (one,) = Models.of([tmp_path / "demo/bundle"])
    assert one.name == "demo"
    with pytest.raises(RegardError, match=r"demo' is the folder of a run; its bundle is '.*demo/bundle'$"):
        Models.of([tmp_path / "demo"])


def damaged(folder, name, content):
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{", "config.json' is no whole JSON; copy the bundle again"),
        ("config.json", b"{}", "is no whole bundle: parts of it are missing; copy it again"),
        ("config.json", b'{"model": 3, "vocabulary": {}}', "is no whole bundle"),
        ("manifest.json", b"[]", "manifest.json' is no whole JSON"),
        ("manifest.json", b'{"files": {}}', "is no whole bundle"),
        ("card.json", b"\xff", "card.json' is no whole JSON"),
        ("weights.safetensors", b"", "is no whole safetensors file"),
        ("weights.safetensors", b"\xff" * 100, "is no whole safetensors file"),
    ],
)
def test_damage_is_one_line_before_anything_is_served(tmp_path, folders, name, content, said):
    folder = shutil.copytree(folders["transformer"], tmp_path / "b")
    with pytest.raises(RegardError) as error:
        Models.of([damaged(folder, name, content)])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_damage_that_only_loading_finds_is_said_to_who_asks(tmp_path, folders):
    folder = shutil.copytree(folders["transformer"], tmp_path / "b")
    whole = bytearray((folder / "weights.safetensors").read_bytes())
    whole[-1] ^= 1
    models = Models.of([damaged(folder, "weights.safetensors", whole)])
    ask = {"model": next(iter(models)).id, "source": "aba"}
    for _ in range(2):
        said = refused(client(models).post("/api/trace", json=ask), 500, "bundle-damaged")
        assert said.endswith("was altered: its sha256 differs; copy the bundle again")


@pytest.mark.parametrize("name", ["missing", "file", "empty"])
def test_what_is_no_bundle_is_said(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RegardError, match=r"give the folder (that )?`regard train` wrote$"):
        Models.of([tmp_path / name])


def test_a_model_is_loaded_once_and_computes_one_thing_at_a_time(folders):
    model = Offered(folders["transformer"])
    inside, seen, most = 0, [], []

    def work():
        nonlocal inside
        with model.turn() as pipeline:
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


def test_a_full_queue_is_said_with_when_to_come_again(folders):
    models = Models.of([folders["transformer"]])
    (model,) = models
    release, entered = threading.Event(), threading.Semaphore(0)

    def wait():
        entered.release()
        with model.turn():
            release.wait(20)

    threads = [threading.Thread(target=wait) for _ in range(QUEUE)]
    for thread in threads:
        thread.start()
        entered.acquire()
    while model._waiting < QUEUE:
        pass
    answer = client(models).post("/api/trace", json={"model": model.id, "source": "aba"})
    release.set()
    for thread in threads:
        thread.join()
    assert refused(answer, 429, "busy")
    assert answer.headers["retry-after"] == "1"
    with model.turn() as pipeline:
        assert pipeline("aba").source == "aba"


def test_the_models_that_ship_know_their_quality_and_answer_their_example():
    models = Models.of()
    assert [model.name for model in models] == ["spelling", "spelling-recurrent"]
    for model in models:
        assert model.shipped
        assert model.entry["quality"]
        answer = client(models).post("/api/trace", json={"model": model.id, "source": model.entry["example"]}).json()
        assert answer["output"]["text"] == "AH T EH N SH AH N"
        assert answer["check"]["max_delta"] < 1e-4
