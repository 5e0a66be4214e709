"""The `regard explore` process: it serves before torch is loaded and exits on Ctrl-C."""

import json
import re
import signal
import urllib.request

import pytest

from regard import __version__
from regard.explore import server
from tests.commands.small import regard, start

TIMEOUT = 180  # seconds: a bound for a hung server, never a measure of speed


@pytest.fixture
def running(folders):
    process = start(["explore", str(folders["transformer"]), "--no-browser", "--port", "0"])
    yield process
    process.kill()
    process.communicate()


def test_server_prints_its_address_serves_and_exits(running):
    line = running.stdout.readline()
    found = re.fullmatch(
        r"Regard serves transformer at (http://127\.0\.0\.1:\d+/) \(Ctrl-C to stop\)\n", line
    )
    with urllib.request.urlopen(found[1] + "healthz", timeout=TIMEOUT) as response:
        assert json.load(response) == {"ok": True, "version": __version__}
        assert "server" not in response.headers
    with urllib.request.urlopen(found[1] + "api/models", timeout=TIMEOUT) as response:
        model = json.load(response)["models"][0]["id"]
    body = json.dumps({"model": model, "source": "zebra"}).encode()
    request = urllib.request.Request(
        found[1] + "api/trace", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        assert json.load(response)["tokens"]["source"][0]["text"] == "z"
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out, error) == (0, "", "")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_server_exits_while_torch_is_loading(running, number, code):
    assert re.search(r"http://\S+/", running.stdout.readline())
    running.send_signal(number)
    out, error = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out, error) == (code, "", "")


def test_missing_bundle_is_a_one_line_error(capsys, tmp_path):
    _, error = regard(capsys, "explore", tmp_path / "nothing", "--no-browser", code=2)
    assert error == (
        f"regard: no bundle at '{tmp_path / 'nothing'}'; pass a folder written by `regard train`\n"
    )


@pytest.mark.parametrize("remote", [False, True])
def test_token_is_printed_for_remote_hosts(models, monkeypatch, capsys, remote):
    opened, run = [], []
    monkeypatch.setattr(server, "is_local", lambda host: not remote)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    monkeypatch.setattr(server, "_preload", lambda models: None)
    monkeypatch.setattr(
        server.uvicorn.Server,
        "run",
        lambda self, sockets: run.append((self.config, sockets[0].getsockname()[1])),
    )
    server.serve(models, host="127.0.0.1", port=0)
    ((config, port),) = run
    guard = config.app
    assert (guard.token is not None) == remote
    address = f"http://127.0.0.1:{port}/" + (f"?token={guard.token}" if remote else "")
    printed = capsys.readouterr().out
    assert printed == f"Regard serves transformer, recurrent at {address} (Ctrl-C to stop)\n"
    assert opened == [address]
    assert not remote or len(guard.token) >= 32


def test_palette_route_does_not_need_matplotlib(client):
    response = client.get("/api/palette")
    assert "matplotlib" not in response.text
    assert response.json()["weights"]["levels"] == 256
