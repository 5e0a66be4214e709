"""Connections to the explorer: idle clients, unfinished requests and foreign pages."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from regard.explore.server import ExplorerServer, Guard
from regard.web.access import LOCAL_NAMES
from regard.web.http_limits import HttpLimits
from tests.explore.helpers import PORT, error_message

IDLE = 0.4


async def hello(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def running(monkeypatch):
    """A server with a short idle time, in a thread; yields its port."""
    limits = HttpLimits(idle_seconds=IDLE)
    monkeypatch.setattr("regard.explore.server.LIMITS", limits)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = ExplorerServer(Guard(hello, hosts=LOCAL_NAMES, port=port), limits)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def read_to_the_end(client: socket.socket) -> bytes:
    """All bytes until the server closes; a server that does not close fails by the time limit."""
    client.settimeout(30)
    received = b""
    try:
        while data := client.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


HEAD = "POST /api/x HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
UNFINISHED = {
    "nothing": "",
    "half a header": "GET / HTTP/1.1\r\nhost: 127.",
    "half a request line": "GE",
    "half a body": HEAD + "content-length: 100\r\n\r\n{{",
    "half a chunk": HEAD + "transfer-encoding: chunked\r\n\r\n10\r\n{{",
}


@pytest.mark.parametrize("kind", UNFINISHED)
def test_unfinished_requests_are_closed(kind, monkeypatch):
    with running(monkeypatch) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(UNFINISHED[kind].format(port=port).encode())
        received = read_to_the_end(client)
    assert (b" 408 " in received) == kind.startswith(("half a body", "half a chunk"))


def test_idle_connections_are_closed_after_a_response(monkeypatch):
    with running(monkeypatch) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert b"hello" in read_to_the_end(client)


def test_many_idle_connections_leave_room_for_others(monkeypatch):
    with running(monkeypatch) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for client in idle:
            assert read_to_the_end(client) == b""
            client.close()
        with socket.create_connection(("127.0.0.1", port)) as client:
            request = f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"
            client.sendall(request.encode())
            assert b"hello" in read_to_the_end(client)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_requests_of_foreign_pages_are_rejected(client, ids, headers):
    body = {"model": ids["transformer"], "text": "a", "side": "source"}
    answer = client.post("/api/tokenize", json=body, headers=headers)
    assert "may not use this server" in error_message(answer, 403, "wrong-origin")
    assert client.get("/api/models", headers=headers).status_code == 200  # reveals nothing: no CORS


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": f"http://127.0.0.1:{PORT}", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
    ids=str,
)
def test_requests_of_own_pages_and_programs_pass(client, ids, headers):
    body = {"model": ids["transformer"], "text": "a", "side": "source"}
    own = {"host": f"127.0.0.1:{PORT}", **headers}
    assert client.post("/api/tokenize", json=body, headers=own).status_code == 200
