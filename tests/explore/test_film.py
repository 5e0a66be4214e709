"""The training film on the server: snapshots as models, reduced films, markers and errors."""

import copy
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load, load_file

import regard
from regard.commands.film import reduce_film
from regard.errors import RegardError
from regard.explore.model_store import ModelStore
from regard.trace import record
from tests.explore.films import STEPS, loss_at, save_run
from tests.explore.helpers import SETTINGS, SOURCE, error_message, make_client, save_bundle

OTHER = SETTINGS["transformer"].model_copy(update={"width": 8})


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def run(request, tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("films") / f"{request.param}-run", request.param)


@pytest.fixture(scope="module")
def client(run):
    return make_client(ModelStore.open([run]))


@pytest.fixture(scope="module")
def id(client):
    return client.get("/api/models").json()["models"][0]["id"]


@pytest.fixture(scope="module")
def at_step(run):
    """The model after a step, with weights copied from the file."""

    def load(step: int) -> regard.Pipeline:
        pipeline = regard.load(run / "bundle", device="cpu", long="allow")
        model = copy.deepcopy(pipeline.model)
        weights = load_file(run / f"film/step-{step:09}.safetensors")
        model.load_state_dict({name: one.float() for name, one in weights.items()}, strict=False)
        pipeline.model = model
        return pipeline

    return load


def trace_of(client, id, **request) -> dict:
    response = client.post("/api/trace", json={"model": id, "source": SOURCE, **request})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_film_lists_steps_and_losses(client, id):
    assert client.get("/api/models").json()["models"][0]["film"] is True
    found = client.get(f"/api/models/{id}/film").json()
    assert found["kind"] == "snapshots"
    assert found["steps"] == STEPS
    assert found["losses"] == [loss_at(step) for step in STEPS]


def test_a_snapshot_has_its_own_numbers(client, id, at_step):
    for step in (0, 8, 64):
        found = trace_of(client, id, target="AH B", checkpoint=step)
        expected = record(at_step(step), SOURCE, target="AH B")
        assert found["checkpoint"] == step
        assert found["partial"] is False
        assert found["check"]["max_delta"] < 1e-4
        assert found["output"]["logp"] == pytest.approx(float(expected["out.total"]), abs=1e-5)
        name = f"{expected.attentions[-1].name}.weights"
        response = client.get(f"/api/trace/{found['id']}/tensors", params={"name": name})
        assert torch.allclose(load(response.content)[name], expected[name], atol=1e-6)


def test_numbers_of_a_snapshot_are_explained(client, id, at_step):
    found = trace_of(client, id, target="AH B", checkpoint=4)
    query = {"tensor": "out.logits", "index": "1,2"}
    explained = client.get(f"/api/trace/{found['id']}/explain", params=query).json()
    expected = record(at_step(4), SOURCE, target="AH B")["out.logits"][1, 2]
    assert explained["result"] == pytest.approx(float(expected), abs=1e-5)


def test_search_and_ablation_use_the_snapshot(client, id, at_step):
    found = trace_of(client, id, checkpoint=2, decoding={"beam": 1})
    assert found["output"]["text"] == at_step(2)(SOURCE, beam=1).text
    body = {"model": id, "source": SOURCE, "target": "AH B", "checkpoint": 2}
    effects = client.post("/api/head-ablation", json=body).json()
    logp = float(record(at_step(2), SOURCE, target="AH B")["out.total"])
    assert effects["base"]["logp"] == pytest.approx(logp, abs=1e-4)


def test_the_finished_model_is_unchanged(client, id, run):
    trace_of(client, id, target="AH B", checkpoint=0)
    found = trace_of(client, id, target="AH B")
    expected = record(regard.load(run / "bundle", device="cpu"), SOURCE, target="AH B")
    assert found["checkpoint"] is None
    assert found["output"]["logp"] == pytest.approx(float(expected["out.total"]), abs=1e-5)


def test_an_unknown_step_names_the_nearest(client, id):
    body = {"model": id, "source": SOURCE, "checkpoint": 14}
    message = error_message(client.post("/api/trace", json=body), 404, "no-snapshot")
    assert message == "the film has no snapshot of step 14; try 16"


def test_the_python_script_of_a_snapshot_runs(client, id, at_step):
    found = trace_of(client, id, target="AH B", checkpoint=8)
    query = {"format": "python", "name": ["out.total"]}
    script = client.get(f"/api/trace/{found['id']}/export", params=query).text
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    number = float(done.stdout.splitlines()[-1].removeprefix("tensor(").removesuffix(")"))
    expected = record(at_step(8), SOURCE, target="AH B")["out.total"]
    assert number == pytest.approx(float(expected), abs=1e-3)


def test_models_without_a_film_say_so(tmp_path):
    client = make_client(ModelStore.open([save_bundle(tmp_path / "plain")]))
    model = client.get("/api/models").json()["models"][0]
    assert model["film"] is False
    error_message(client.get(f"/api/models/{model['id']}/film"), 404, "no-film")
    with pytest.raises(RegardError, match=r"has no training film; train it with .*film=40$"):
        reduce_film(tmp_path / "plain")


@pytest.fixture(scope="module")
def reduced(run, tmp_path_factory):
    """The bundle without its snapshots, and a reduced film beside it."""
    place = tmp_path_factory.mktemp("reduced") / run.name
    place.mkdir()
    shutil.copytree(run / "bundle", place / "model")
    report = reduce_film(run, ["zebra", "aba"], place / "model.film.safetensors")
    assert "8 snapshots of 2 texts" in report
    return place / "model"


def test_a_reduced_film_has_the_same_weights(reduced, at_step):
    client = make_client(ModelStore.open([reduced]))
    model = client.get("/api/models").json()["models"][0]
    film = client.get(f"/api/models/{model['id']}/film").json()
    assert film["kind"] == "probes"
    assert film["steps"] == STEPS
    assert [one["source"] for one in film["probes"]] == ["zebra", "aba"]
    target = film["probes"][0]["target"]
    body = {"model": model["id"], "source": "zebra", "target": target, "checkpoint": 4}
    found = client.post("/api/trace", json=body).json()
    expected = record(at_step(4), "zebra", target=target)
    assert found["partial"] is True
    assert [one["text"] for one in found["tokens"]["source"]] == [p.text for p in expected.source]
    assert found["output"]["logp"] == pytest.approx(float(expected["out.total"]), rel=1e-2)
    best = expected["out.logits"].argmax(1).tolist()
    assert [one["id"] for one in found["predicted_tokens"]] == best
    for one in expected.attentions:
        name = f"{one.name}.weights"
        query = {"name": name}
        tensors = load(client.get(f"/api/trace/{found['id']}/tensors", params=query).content)
        assert torch.allclose(tensors[name], expected[name], atol=1e-3)
    view = f"/api/trace/{found['id']}"
    assert client.get(f"{view}/heads").status_code == 200
    assert client.get(f"{view}/alignment").status_code == 200
    top = client.get(f"{view}/output", params={"row": 0}).json()
    assert top["top"][0]["id"] == best[0]
    query = {"side": "source", "position": 0}
    error_message(client.get(f"{view}/neighbours", params=query), 422, "no-model")
    other = {**body, "source": "nabob"}
    error_message(client.post("/api/trace", json=other), 422, "not-in-film")


def test_films_of_other_weights_and_damaged_ones(reduced, tmp_path):
    other = save_bundle(tmp_path / "model", settings=OTHER)
    film = tmp_path / "model.film.safetensors"
    client = make_client(ModelStore.open([other]))
    id = client.get("/api/models").json()["models"][0]["id"]
    content = reduced.with_name("model.film.safetensors").read_bytes()
    for written, reason in ((content, "belongs to other weights"), (content[:-7], "is not a film")):
        film.write_bytes(written)
        response = client.get(f"/api/models/{id}/film")
        assert reason in error_message(response, 422, "film-damaged")
    film.unlink()
