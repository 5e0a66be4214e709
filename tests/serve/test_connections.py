"""Connections: disconnects, slow and idle clients, limits, pipelining."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from regard.web.http_limits import HttpLimits
from tests.serve.http_helpers import TIMEOUT, FakeService, exchange, get, post, running, split


def request(port: int, body: bytes = b'{"input":"ab"}', close: bool = False) -> bytes:
    head = f"POST /v1/generate HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    head += "connection: close\r\n" if close else ""
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds: the server notes the end of a connection after its client."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def open_connections(server) -> float:
    """The connections that the server has counted."""
    return server.app.metrics.registry.get_sample_value("regard_connections")


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection; what it sent before is discarded."""
    connection.settimeout(TIMEOUT)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def statuses_of_large_requests(port: int) -> set[int]:
    """Statuses of requests that are sent completely, whatever the server answers meanwhile."""
    found = set()
    for _ in range(20):
        with connect(port) as connection:
            connection.sendall(request(port, b"x" * 5_000_000))
            found.add(split(connection.recv(65_536))[0])
    return found


@pytest.fixture
def held():
    """A server whose service answers nothing."""
    service = FakeService()
    service.gate = asyncio.Event()
    with running(service) as server:
        yield server
        server.service.gate.set()


def test_a_client_that_disconnects_cancels_its_request(held):
    with connect(held.port) as connection:
        connection.sendall(request(held.port))
        assert held.service.started.wait(TIMEOUT)
        assert not held.service.cancelled.is_set()
    assert held.service.cancelled.wait(TIMEOUT)
    assert get(held.port, "/v2/health/live")[0] == 200
    lines = [line for line in held.log_lines() if line["path"] == "/v1/generate"]
    assert [line["status"] for line in lines] == [499]


def test_a_client_that_disconnects_in_its_body_is_no_error():
    with running() as server:
        with connect(server.port) as connection:
            connection.sendall(request(server.port)[:-3])
        assert post(server.port, "/v1/generate", {"input": "ab"})[0] == 200
        events = [line["event"] for line in server.log_lines()]
        assert set(events) == {"request"}


def test_one_connection_serves_many_requests():
    with running() as server, connect(server.port) as connection:
        for _ in range(3):
            connection.sendall(request(server.port))
            received = b""
            while not received.endswith(b"]]}"):
                received += connection.recv(65_536)
            assert received.startswith(b"HTTP/1.1 200 OK\r\n")
        connection.sendall(2 * request(server.port) + request(server.port, close=True))  # pipelined
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
        assert b"".join(parts).count(b"HTTP/1.1 200 OK") == 3


def test_unfinished_requests_and_idle_connections_are_closed():
    with running(limits=HttpLimits(idle_seconds=0.3)) as server:
        whole = request(server.port)
        silent, head, idle, late = (connect(server.port) for _ in range(4))
        head.sendall(whole[:20])
        idle.sendall(whole)
        late.sendall(whole[:-3])
        with late:
            assert split(late.recv(65_536))[0] == 408
        for connection in (silent, head, idle):
            with connection:
                assert is_closed(connection)
        registry = server.app.metrics.registry
        until(lambda: registry.get_sample_value("regard_connections") == 0)


def test_headers_that_trickle_in_do_not_keep_a_connection():
    with running(limits=HttpLimits(idle_seconds=0.5)) as server, connect(server.port) as slow:
        ended = threading.Event()

        def trickle() -> None:
            try:
                while not ended.wait(0.05):
                    slow.sendall(b"x")
            except OSError:
                pass

        slow.sendall(b"GET / HTTP/1.1\r\nx: ")
        thread = threading.Thread(target=trickle)
        thread.start()
        assert is_closed(slow)
        ended.set()
        thread.join()


def test_a_client_that_does_not_read_is_disconnected():
    service, big = FakeService(), "x" * 9_000_000
    limits = HttpLimits(idle_seconds=0.5, body_bytes=10_000_000)
    with running(service, limits=limits) as server, connect(server.port) as slow:
        body = json.dumps({"input": big}).encode()
        slow.sendall(request(server.port, body))
        assert service.started.wait(TIMEOUT)
        until(lambda: not open_connections(server))
        assert post(server.port, "/v1/generate", {"input": "ab"})[0] == 200


def test_connections_are_bounded():
    with running(limits=HttpLimits(connections=3, idle_seconds=20)) as server:
        held = [connect(server.port) for _ in range(3)]
        until(lambda: open_connections(server) >= 3)
        status, headers, body = split(exchange(server.port, b""))
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(body)["error"]["message"] == ("all 3 connections are in use; retry later")
        held.pop().close()
        until(lambda: open_connections(server) <= 2)
        assert get(server.port, "/v2/health/live")[0] == 200
        for connection in held:
            connection.close()


def test_a_refused_client_that_sends_reads_its_refusal():
    limits = HttpLimits(connections=1, idle_seconds=20)
    with running(limits=limits) as server, connect(server.port):
        until(lambda: open_connections(server) >= 1)
        assert statuses_of_large_requests(server.port) == {429}


def test_a_client_that_sends_too_much_reads_its_refusal():
    with running(limits=HttpLimits(body_bytes=1_000)) as server:
        assert statuses_of_large_requests(server.port) == {413}


def test_refused_clients_are_closed_in_the_end(monkeypatch):
    monkeypatch.setattr("regard.web.connections.LINGER", 0.3)
    limits = HttpLimits(connections=1, idle_seconds=20)
    with running(limits=limits) as server, connect(server.port):
        until(lambda: open_connections(server) >= 1)
        with connect(server.port) as refused:
            assert is_closed(refused)  # its input ends at once
            deadline = time.monotonic() + TIMEOUT
            while server.table.refused and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not server.table.refused


def test_connections_stay_within_the_limit_of_files():
    program = """
import resource
from regard.web.file_limit import RESERVE, connections_within_files
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 1000))
print(connections_within_files(500), resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE)
print(connections_within_files(5000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.split() == ["500", "500", "744", "1000"], found.stderr
