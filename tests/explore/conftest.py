"""Small bundles of both families and a server on them."""

import pytest

from regard.explore.model_store import ModelStore
from regard.explore.trace_store import TraceStore
from tests.explore.helpers import SETTINGS, SOURCE, make_client, save_bundle


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("bundles")
    return {family: save_bundle(home / family, family) for family in SETTINGS}


@pytest.fixture(scope="session")
def models(folders):
    return ModelStore.open(list(folders.values()))


@pytest.fixture(scope="session")
def traces(models):
    return TraceStore(models)


@pytest.fixture(scope="session")
def client(models, traces):
    return make_client(models, traces)


@pytest.fixture(scope="session")
def ids(models):
    """The model id of each family."""
    return {model.family: model.id for model in models}


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def pipeline(models, ids, family):
    return models[ids[family]].pipeline


@pytest.fixture(scope="module")
def described(client, ids, family):
    """The JSON description of the trace of one text."""
    body = {"model": ids[family], "source": SOURCE, "decoding": {"beam": 3}}
    response = client.post("/api/trace", json=body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture(scope="module")
def view(client, described):
    """A view of that trace: `view("output", row=1)`."""

    def get(path: str, **query):
        response = client.get(f"/api/trace/{described['id']}/{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    return get
