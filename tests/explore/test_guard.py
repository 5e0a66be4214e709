"""Who may ask, how much, and what every answer carries."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.errors import RegardError
from regard.explore import server
from regard.explore.guard import HEADERS, POLICY
from regard.explore.requests import BODY
from tests.explore.small import PORT, client, refused


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_this_machines_own_names_are_answered(web, host):
    assert web.get("/healthz", headers={"host": f"{host}:{PORT}"}).json() == {"ok": True, "version": "0.1.0"}


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"127.0.0.1.evil.example:{PORT}", ""],
)
def test_other_names_are_not(web, host):
    for path in ("/healthz", "/api/models", "/"):
        said = refused(web.get(path, headers={"host": host}), 421, "wrong-host")
        assert said.endswith(f"open http://127.0.0.1:{PORT}/")


@pytest.mark.parametrize(
    "path", ["/healthz", "/api/models", "/nowhere", "/api/trace/x/wall", "/", "/api/models/a/graph"]
)
def test_every_answer_carries_the_headers(web, path):
    answer = web.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] == ("no-store" if path.startswith("/api/") else "no-cache")
    assert "access-control-allow-origin" not in answer.headers


def test_the_policy_names_no_other_machine_and_runs_nothing_inline():
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_refusals_and_failures_carry_the_headers_too(models, monkeypatch):
    web = client(models)
    monkeypatch.setattr(type(next(iter(models))), "entry", property(lambda self: 1 / 0))
    failed = web.get("/api/models")
    assert "ZeroDivisionError" in refused(failed, 500, "failed")
    for answer in (failed, web.get("/", headers={"host": "evil.example"})):
        assert answer.headers["content-security-policy"] == POLICY


def test_elsewhere_only_who_has_the_token_is_answered(models):
    web = client(models, token="a secret")
    other = {"host": "machine.example:7341"}
    assert web.get("/healthz", headers=other).status_code == 200
    for asked in ({}, {"params": {"token": "wrong"}}, {"params": {"token": ""}}, {"params": {"token": "ä"}}):
        assert refused(web.get("/api/models", headers=other, **asked), 403, "no-token")
    for cookie in (f"regard-{PORT}=wrong", f"regard-{PORT}=", b"\xff=;;=", "regard-1=a secret"):
        assert refused(web.get("/api/models", headers={**other, "cookie": cookie}), 403, "no-token")
    assert web.get("/api/models", headers=other, params={"token": "a secret"}).status_code == 200


def test_the_token_moves_from_the_address_to_a_cookie(models):
    web = client(models, token="secret")
    entered = web.get("/?token=secret", follow_redirects=False)
    assert (entered.status_code, entered.headers["location"]) == (303, "./")
    assert {"HttpOnly", "SameSite=Lax"} <= set(entered.headers["set-cookie"].split("; "))
    assert web.get("/api/models").status_code == 200  # the client keeps cookies as a browser does


def test_bodies_are_bounded(web, ids):
    ask = {"model": ids["transformer"], "text": "a"}
    assert web.post("/api/tokenize", json={**ask, "side": "source"}).status_code == 200
    long = b'{"model": "' + b"x" * BODY + b'"}'
    kind = {"content-type": "application/json"}
    assert refused(web.post("/api/tokenize", content=long, headers=kind), 413, "too-large")
    assert refused(
        web.post("/api/tokenize", content=iter([long[:40_000], long[40_000:]]), headers=kind), 413, "too-large"
    )
    for other in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert refused(web.post("/api/tokenize", content=b"{}", headers={"content-type": other}), 415, "wrong-type")


def test_a_client_that_leaves_in_the_middle_is_no_fault(models):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/tokenize", "query_string": b"", "headers": headers}
    asked = client(models).app(scope | {"http_version": "1.1", "scheme": "http"}, receive, send)
    with ThreadPoolExecutor(1) as elsewhere:  # a browser of other tests may have its loop in this thread
        elsewhere.submit(asyncio.run, asked).result()
    assert sent[0]["status"] == 422


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((name, True) for name in ("127.0.0.1", "127.8.9.1", "::1", "localhost")),
        *((name, False) for name in ("0.0.0.0", "::", "10.0.0.7", "machine.example", "localhost.example")),
    ],
)
def test_what_is_this_machine_alone(host, own):
    assert server.own(host) is own


def test_a_taken_port_is_replaced_only_where_none_was_asked_for(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RegardError, match=rf"^cannot listen on 127.0.0.1:{port}: .*choose another --port"):
            server.bound("127.0.0.1", port)
        monkeypatch.setattr(server, "PORT", port)
        chosen, said = server.bound("127.0.0.1", None)
        with chosen:
            assert chosen.getsockname()[1] != port
            assert said == f"Port {port} is taken, so another was chosen. "
    for wrong in (-1, 70_000):
        with pytest.raises(RegardError, match=r"^--port must be from 0 to 65535"):
            server.bound("127.0.0.1", wrong)
    with pytest.raises(RegardError, match=r"^cannot listen on no.such.host.invalid:7"):
        server.bound("no.such.host.invalid", 7)
