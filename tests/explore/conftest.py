"""The small bundles of both families, offered together."""

import pytest

from regard.explore.models import Models
from regard.explore.traces import Traces
from tests.explore.small import SETTINGS, SOURCE, client, saved


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("bundles")
    return {family: saved(home / family, family) for family in SETTINGS}


@pytest.fixture(scope="session")
def models(folders):
    return Models.of(list(folders.values()))


@pytest.fixture(scope="session")
def traces(models):
    return Traces(models)


@pytest.fixture(scope="session")
def web(models, traces):
    return client(models, traces)


@pytest.fixture(scope="session")
def ids(models):
    """The id of each family's model."""
    return {model.family: model.id for model in models}


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def asked(web, ids, family):
    """The trace of one answer, as the page gets it."""
    answer = web.post("/api/trace", json={"model": ids[family], "source": SOURCE, "decode": {"beam": 3}})
    assert answer.status_code == 200, answer.text
    return answer.json()
