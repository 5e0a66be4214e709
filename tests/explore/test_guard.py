"""Access control, body limits and security headers."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard import __version__
from regard.errors import RegardError
from regard.explore.messages import MAX_BODY
from regard.web.access import HEADERS, POLICY
from regard.web.listener import is_local, open_socket
from tests.explore.helpers import PORT, error_message, make_client


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_local_host_names_are_accepted(client, host):
    assert client.get("/healthz", headers={"host": f"{host}:{PORT}"}).json() == {
        "ok": True,
        "version": __version__,
    }


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:80",
        f"127.0.0.1.evil.example:{PORT}",
        "",
    ],
)
def test_other_host_names_are_rejected(client, host):
    for path in ("/healthz", "/api/models", "/"):
        message = error_message(client.get(path, headers={"host": host}), 421, "wrong-host")
        assert message.endswith(f"open http://127.0.0.1:{PORT}/")


@pytest.mark.parametrize(
    "path",
    ["/healthz", "/api/models", "/nowhere", "/api/trace/x/heads", "/", "/api/models/a/graph"],
)
def test_every_response_has_the_headers(client, path):
    response = client.get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["cache-control"] == (
        "no-store" if path.startswith("/api/") else "no-cache"
    )
    assert "access-control-allow-origin" not in response.headers


def test_policy_allows_no_other_host_and_no_inline_code():
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_error_responses_have_the_headers(models, monkeypatch):
    client = make_client(models)
    monkeypatch.setattr(type(next(iter(models))), "entry", property(lambda self: 1 / 0))
    failed = client.get("/api/models")
    assert "ZeroDivisionError" in error_message(failed, 500, "failed")
    for response in (failed, client.get("/", headers={"host": "evil.example"})):
        assert response.headers["content-security-policy"] == POLICY


def test_remote_requests_need_the_token(models):
    client = make_client(models, token="a secret")
    other = {"host": "machine.example:7341"}
    assert client.get("/healthz", headers=other).status_code == 200
    for query in (
        {},
        {"params": {"token": "wrong"}},
        {"params": {"token": ""}},
        {"params": {"token": "ä"}},
    ):
        assert error_message(client.get("/api/models", headers=other, **query), 403, "no-token")
    for cookie in (f"regard-{PORT}=wrong", f"regard-{PORT}=", b"\xff=;;=", "regard-1=a secret"):
        assert error_message(
            client.get("/api/models", headers={**other, "cookie": cookie}), 403, "no-token"
        )
    assert client.get("/api/models", headers=other, params={"token": "a secret"}).status_code == 200


def test_a_person_without_the_token_reads_a_sentence(models):
    client = make_client(models, token="a secret")
    response = client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert response.status_code == 403
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text.endswith("open the address that the server printed\n")
    assert "a secret" not in response.text


def test_token_moves_from_the_address_to_a_cookie(models):
    client = make_client(models, token="secret")
    response = client.get("/?token=secret", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "./")
    assert {"HttpOnly", "SameSite=Lax"} <= set(response.headers["set-cookie"].split("; "))
    assert client.get("/api/models").status_code == 200  # the client keeps cookies


def test_body_size_is_limited(client, ids):
    body = {"model": ids["transformer"], "text": "a"}
    assert client.post("/api/tokenize", json={**body, "side": "source"}).status_code == 200
    long = b'{"model": "' + b"x" * MAX_BODY + b'"}'
    kind = {"content-type": "application/json"}
    assert error_message(client.post("/api/tokenize", content=long, headers=kind), 413, "too-large")
    assert error_message(
        client.post("/api/tokenize", content=iter([long[:40_000], long[40_000:]]), headers=kind),
        413,
        "too-large",
    )
    for other in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert error_message(
            client.post("/api/tokenize", content=b"{}", headers={"content-type": other}),
            415,
            "wrong-type",
        )


def test_client_that_disconnects_is_not_a_crash(models):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/tokenize",
        "query_string": b"",
        "headers": headers,
    }
    call = make_client(models).app(scope | {"http_version": "1.1", "scheme": "http"}, receive, send)
    with ThreadPoolExecutor(1) as pool:  # a browser test may run its loop in this thread
        pool.submit(asyncio.run, call).result()
    assert sent[0]["status"] == 422


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((name, True) for name in ("127.0.0.1", "127.8.9.1", "::1", "localhost")),
        *(
            (name, False)
            for name in ("0.0.0.0", "::", "10.0.0.7", "machine.example", "localhost.example")
        ),
    ],
)
def test_loopback_addresses_are_local(host, local):
    assert is_local(host) is local


def test_only_the_default_port_is_replaced():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            RegardError, match=rf"^cannot listen on 127.0.0.1:{port}: .*choose another --port"
        ):
            open_socket("127.0.0.1", port, 7341)
        listener, note = open_socket("127.0.0.1", None, port)
        with listener:
            assert listener.getsockname()[1] != port
            assert note == f"Port {port} is in use; using another one. "
    for wrong in (-1, 70_000):
        with pytest.raises(RegardError, match=r"^--port must be from 0 to 65535"):
            open_socket("127.0.0.1", wrong, 7341)
    with pytest.raises(RegardError, match=r"^cannot listen on no.such.host.invalid:7"):
        open_socket("no.such.host.invalid", 7, 7341)
