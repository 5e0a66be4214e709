"""`regard explore` from outside: alive before torch is, and gone at Ctrl-C."""

import json
import re
import signal
import urllib.request

import pytest

from regard.explore import server
from tests.commands.small import regard, start

TIMEOUT = 180  # seconds: a bound for a hung server, never a measure of speed


@pytest.fixture
def running(folders):
    process = start(["explore", str(folders["transformer"]), "--no-browser", "--port", "0"])
    yield process
    process.kill()
    process.communicate()


def test_a_server_says_where_it_is_answers_and_ends(running):
    line = running.stdout.readline()
    found = re.fullmatch(r"Regard shows transformer at (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends it\)\n", line)
    with urllib.request.urlopen(found[1] + "healthz", timeout=TIMEOUT) as answer:
        assert json.load(answer) == {"ok": True, "version": "0.1.0"}
        assert "server" not in answer.headers
    with urllib.request.urlopen(found[1] + "api/models", timeout=TIMEOUT) as answer:
        model = json.load(answer)["models"][0]["id"]
    body = json.dumps({"model": model, "source": "zebra"}).encode()
    asked = urllib.request.Request(found[1] + "api/trace", body, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=TIMEOUT) as answer:
        assert json.load(answer)["tokens"]["source"][0]["text"] == "z"
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out, said) == (0, "", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_it_ends_at_once_while_torch_is_still_loading(running, number, code):
    url = re.search(r"http://\S+/", running.stdout.readline())[0]
    if number == signal.SIGTERM:  # which it knows how to take once it runs
        urllib.request.urlopen(url + "healthz", timeout=TIMEOUT).close()
    running.send_signal(number)
    out, said = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out, said) == (code, "", "")


def test_mistakes_are_one_line(capsys, tmp_path):
    _, said = regard(capsys, "explore", tmp_path / "nothing", "--no-browser", code=2)
    assert said == f"regard: there is no bundle '{tmp_path / 'nothing'}'; give a folder written by `regard train`\n"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_token_is_printed_where_others_could_ask(models, monkeypatch, capsys, elsewhere):
    opened, run = [], []
    monkeypatch.setattr(server, "own", lambda host: not elsewhere)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    monkeypatch.setattr(server, "_warm", lambda models: None)
    monkeypatch.setattr(
        server.uvicorn.Server, "run", lambda self, sockets: run.append((self.config, sockets[0].getsockname()[1]))
    )
    server.serve(models, host="127.0.0.1", port=0)
    ((config, port),) = run
    guard = config.app
    assert (guard.token is not None) == elsewhere
    address = f"http://127.0.0.1:{port}/" + (f"?token={guard.token}" if elsewhere else "")
    said = capsys.readouterr().out
    assert said == f"Regard shows transformer, recurrent at {address} (Ctrl-C ends it)\n"
    assert opened == [address]
    assert not elsewhere or len(guard.token) >= 32
