"""The cache of traces: its limits, and what happens to traces that were dropped."""

import pytest

from regard.explore.messages import TraceRequest
from regard.explore.trace_store import TraceStore
from tests.explore.helpers import error_message, make_client

WORDS = ["a", "aba", "n", "nabob"]


@pytest.fixture(scope="module")
def request_for(ids):
    return lambda word: TraceRequest(model=ids["transformer"], source=word, target="Z")


def test_dropped_traces_are_recomputed(models, request_for):
    traces = TraceStore(models, max_traces=2)
    stored = [traces.compute(request_for(word)) for word in WORDS]
    assert len(traces) == 2
    assert traces[stored[-1].id] is stored[-1]
    again = traces[stored[0].id]
    assert again is not stored[0]
    assert again.trace["out.total"] == stored[0].trace["out.total"]


def test_store_is_limited_in_bytes(models, request_for):
    sizes = [TraceStore(models).compute(request_for(word)).bytes for word in WORDS[:3]]
    traces = TraceStore(models, max_bytes=sizes[1] + sizes[2])
    for word in WORDS[:3]:
        traces.compute(request_for(word))
    assert len(traces) == 2
    assert traces.bytes <= traces.max_bytes


def test_newest_trace_stays_whatever_its_size(models, request_for):
    traces = TraceStore(models, max_bytes=1)
    assert traces.compute(request_for("a")) is traces[request_for("a").id]


def test_forgotten_requests_have_expired(models, ids):
    client = make_client(models, TraceStore(models, max_traces=1, max_requests=1))
    body = {"model": ids["transformer"], "source": "aba", "target": "Z"}
    first = client.post("/api/trace", json=body).json()["id"]
    client.post("/api/trace", json={**body, "source": "n"})
    for id in (first, "never", "x" * 5_000):
        for path in ("heads", "tensors?name=out.total", "export?format=html"):
            assert error_message(client.get(f"/api/trace/{id}/{path}"), 410, "trace-expired")
    assert client.post("/api/trace", json=body).json()["id"] == first
    assert client.get(f"/api/trace/{first}/heads").status_code == 200
