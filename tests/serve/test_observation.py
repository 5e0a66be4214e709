"""Logs and metrics of the server."""

import json
import os
import re
import time

from regard.serve import serve_log
from regard.serve.serve_log import AllEvents, ServeLog
from regard.serve.serve_metrics import ServeMetrics
from regard.serve.service_errors import QueueFull
from regard.serve.service_types import ServiceEvents
from tests.serve.http_helpers import TIMEOUT, FakeService, get, post, running


def samples(server) -> dict[str, float]:
    text = get(server.port, "/metrics")[2].decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_metrics_count_requests_by_endpoint_and_status():
    with running() as server:
        for body in ({"input": "a"}, {"input": "b"}, {}):
            post(server.port, "/v1/generate", body)
        get(server.port, "/nowhere")
        server.service.error = QueueFull("full")
        post(server.port, "/translate", {"q": "a", "target": "b"})
        found = samples(server)
    requests = {
        tuple(re.findall('"(.*?)"', name)): value
        for name, value in found.items()
        if name.startswith("regard_requests_total")
    }
    assert requests == {
        ("/v1/generate", "200"): 2,
        ("/v1/generate", "422"): 1,
        ("other", "404"): 1,
        ("/translate", "429"): 1,
    }
    assert found['regard_request_seconds_count{endpoint="/v1/generate"}'] == 3
    assert found['regard_workers{model="reverse"}'] == 2
    assert found["process_open_fds"] > 0
    (info,) = [name for name in found if name.startswith("regard_model_info")]
    assert 'fingerprint="print-reverse"' in info


def test_metrics_take_the_events_of_the_service():
    metrics = ServeMetrics()
    events: ServiceEvents = AllEvents(metrics)
    events.queued("m", 5)
    events.started("m", 3, 30, 0.004)
    events.finished("m", 3, 40, 0.02)
    events.started("m", 2, 20, 0.0001)
    events.rejected("m", "queue_full")
    events.worker_started("m", 11)
    events.worker_died("m", 11, -9)
    value = metrics.registry.get_sample_value
    model = {"model": "m"}
    assert value("regard_texts_total", model) == 5
    assert value("regard_batch_texts_bucket", {**model, "le": "2.0"}) == 1
    assert value("regard_batch_texts_sum", model) == 5
    assert value("regard_queue_seconds_bucket", {**model, "le": "0.001"}) == 1
    assert value("regard_source_tokens_total", model) == 50
    assert value("regard_output_tokens_total", model) == 40
    assert value("regard_batch_seconds_sum", model) == 0.02
    assert value("regard_rejections_total", {**model, "reason": "queue_full"}) == 1
    assert value("regard_worker_deaths_total", model) == 1


def test_requests_are_logged_without_their_text():
    with running() as server:
        post(server.port, "/v1/generate", {"input": ["a secret", "ab"]})
        (line,) = server.log_lines()
    assert line.pop("ms") >= 0
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    facts = {"event": "request", "method": "POST", "path": "/v1/generate", "status": 200}
    sizes = {"model": "reverse", "texts": 2, "characters": 10, "client": "127.0.0.1"}
    assert line == {**facts, **sizes}


def test_texts_are_logged_on_request():
    with running(texts=True) as server:
        post(server.port, "/v1/generate", {"input": "größe\n"})
        (line,) = server.log_lines()
        assert line["content"] == ["größe\n"]


def test_a_path_cannot_forge_a_line():
    with running() as server:
        get(server.port, "/%0A%7B%22event%22:%22forged%22%7D")
        (line,) = server.log_lines()
        assert line["path"] == '/\n{"event":"forged"}'


def test_a_full_disk_loses_lines_only():
    with open("/dev/full", "w") as full:
        log = ServeLog(full.fileno())
        log.write("one")
        log.close()
        assert log.lost == 1


def test_a_closed_pipe_loses_lines_only():
    read, write = os.pipe()
    os.close(read)
    log = ServeLog(write)
    log.write("one")
    log.close()
    os.close(write)
    assert log.lost == 1


def test_a_stalled_reader_does_not_block(monkeypatch):
    monkeypatch.setattr(serve_log, "MAX_LINES", 200)
    read, write = os.pipe()
    log = ServeLog(write)
    for number in range(2_000):  # far more than the queue and a pipe take
        log.write("line", number=number, padding="x" * 1_000)
    assert log.lost >= 1_000
    found, end = b"", time.monotonic() + TIMEOUT
    while b"lines-lost" not in found or not found.endswith(b"\n"):
        assert time.monotonic() < end
        found += os.read(read, 65_536)
    lines = [json.loads(line) for line in found.splitlines()]
    lost = next(line for line in lines if line["event"] == "lines-lost")
    assert lost["count"] >= 1_000
    log.close()
    os.close(read)
    os.close(write)


def test_a_server_without_a_log_still_serves():
    with running(FakeService()) as server:
        os.dup2(os.open("/dev/full", os.O_WRONLY), server.app.log._descriptor)
        for _ in range(3):
            assert post(server.port, "/v1/generate", {"input": "ab"})[0] == 200
        server.app.log.close()
        assert server.app.log.lost == 3
