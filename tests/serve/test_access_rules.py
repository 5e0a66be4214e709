"""Who may use the server: Host, Origin, CORS and the token."""

import json

import pytest

from regard.errors import RegardError
from regard.serve.access_rules import checked_origin, read_token
from tests.serve.http_helpers import FakeService, error_of, exchange, get, post, running, split

TOKEN = "0123456789abcdef-secret"
BODY = {"input": "ab"}


def allowed(server, **headers) -> int:
    return post(server.port, "/v1/generate", BODY, headers=headers)[0]


@pytest.fixture(scope="module")
def local():
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def remote():
    with running(token=TOKEN, local=False) as found:
        yield found


@pytest.mark.parametrize("path", ["/", "/v1/models", "/v2/health/live", "/metrics", "/nowhere"])
def test_only_local_host_names_are_served(local, path):
    for host in ("evil.example", f"evil.example:{local.port}", "127.0.0.1", "127.0.0.1:1"):
        assert error_of(get(local.port, path, host=host), 421)["code"] == "wrong_host"
    for host in ("LOCALHOST", "127.0.0.1", "[::1]"):
        assert get(local.port, path, host=f"{host}:{local.port}")[0] in (200, 404)
    no_host = f"GET {path} HTTP/1.0\r\n\r\n".encode()
    assert split(exchange(local.port, no_host))[0] == 421


def test_pages_of_other_sites_may_not_post(local):
    own = f"127.0.0.1:{local.port}"
    assert allowed(local) == 200
    assert allowed(local, origin=f"http://{own}") == 200
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{local.port + 1}", "x"):
        reply = post(local.port, "/v1/generate", BODY, headers={"origin": origin})
        assert error_of(reply, 403)["code"] == "wrong_origin"
        assert "access-control-allow-origin" not in reply[1]
    form = {
        "kind": "application/x-www-form-urlencoded",
        "headers": {"origin": "http://evil.example"},
    }
    assert post(local.port, "/translate", "q=a&target=b", **form)[0] == 403


def test_cors_is_off_by_default(local):
    _, headers, _ = get(local.port, "/v1/models", origin="http://app.example")
    assert not [name for name in headers if name.startswith("access-control")]
    status, headers, _ = get(
        local.port, "/v1/generate", method="OPTIONS", origin="http://app.example"
    )
    assert status == 204
    assert not [name for name in headers if name.startswith("access-control")]


def test_allowed_origins_may_read_and_post():
    origin = "https://app.example"
    with running(origins=[origin]) as server:
        reply = post(server.port, "/v1/generate", BODY, headers={"origin": origin})
        assert (reply[0], reply[1]["access-control-allow-origin"]) == (200, origin)
        assert reply[1]["vary"] == "origin"
        _, headers, _ = get(server.port, "/v1/generate", method="OPTIONS", origin=origin)
        assert headers["access-control-allow-headers"] == "authorization, content-type"
        assert headers["access-control-allow-methods"] == "get, post"
        assert allowed(server, origin="https://other.example") == 403
        _, headers, _ = get(server.port, "/v1/models", origin="https://other.example")
        assert "access-control-allow-origin" not in headers
    with running(origins=["*"]) as server:
        assert allowed(server, origin="https://other.example") == 200


def test_a_remote_server_needs_the_token(remote):
    assert allowed(remote, host="machine.example", authorization=f"Bearer {TOKEN}") == 200
    assert allowed(remote, authorization=f"bearer  {TOKEN} ") == 200
    wrong = ["", "Bearer", "Bearer x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer ä"]
    for value in wrong:
        reply = post(remote.port, "/v1/generate", BODY, headers={"authorization": value})
        assert error_of(reply, 401)["type"] == "authentication_error"
        assert reply[1]["www-authenticate"] == "bearer"
    for path in ("/v1/models", "/metrics", "/languages", "/v1/models/reverse"):
        assert get(remote.port, path)[0] == 401
    for path in ("/", "/docs", "/openapi.json", "/static/try.js", "/v2/health/ready"):
        assert get(remote.port, path)[0] == 200


def test_libretranslate_takes_the_token_as_api_key(remote):
    body = {"q": "ab", "target": "x"}
    status, _, content = post(remote.port, "/translate", {**body, "api_key": TOKEN})
    assert (status, json.loads(content)["translatedText"]) == (200, "ba")
    for key in ({}, {"api_key": ""}, {"api_key": "wrong"}, {"api_key": None}):
        assert post(remote.port, "/translate", {**body, **key})[0] == 401
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert post(remote.port, "/translate", body, headers=bearer)[0] == 200


def test_reload_by_http_needs_a_token(local):
    assert "SIGHUP" in error_of(post(local.port, "/v1/models/reverse/reload", ""), 403)["message"]
    with running(service := FakeService(), token=TOKEN) as server:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        path = "/v1/models/reverse/reload"
        assert post(server.port, path, "")[0] == 401
        assert service.calls == []
        assert post(server.port, path, "", headers=bearer)[0] == 200
        assert service.calls == [("reload", "reverse")]
        assert post(server.port, "/v1/models/x/reload", "", headers=bearer)[0] == 404


def test_token_file_must_be_private_and_long(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    for mode in (0o644, 0o604, 0o606, 0o620):
        file.chmod(mode)
        with pytest.raises(RegardError, match=r"can be read by other users; run: chmod 600"):
            read_token(file)
    for mode in (0o600, 0o400, 0o640):
        file.chmod(mode)
        assert read_token(file) == TOKEN
    file.chmod(0o600)
    for text in ("", "\n", "short", "two words of enough length", "x" * 5000):
        file.write_text(text)
        with pytest.raises(RegardError, match="has no usable token; write 16"):
            read_token(file)
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(RegardError, match=r"cannot read --token-file .*: it is not ASCII text"):
        read_token(file)
    with pytest.raises(RegardError, match=r"cannot read --token-file .*: No such file"):
        read_token(tmp_path / "none")
    tmp_path.chmod(0o700)
    with pytest.raises(RegardError, match=r"cannot read --token-file .*: Is a directory"):
        read_token(tmp_path)


def test_origins_are_checked():
    assert checked_origin("HTTPS://App.Example/") == "https://app.example"
    assert checked_origin("*") == "*"
    for wrong in ("app.example", "https://app.example/path", "ftp://x", "https://", ""):
        with pytest.raises(RegardError, match=r"^--allow-origin must be an origin such as"):
            checked_origin(wrong)
