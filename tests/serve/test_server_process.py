"""The `regard serve` process: start, signals, exit codes, errors of the command, and the docs."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regard.cli import main
from regard.commands.serve import model_specs
from regard.errors import RegardError
from regard.loading import load
from regard.pretrained import MODELS

TIMEOUT = 180  # seconds: a bound for a hung server, never a measure of speed
DOCS = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")
OUTPUT = "AH T EH N SH AH N"


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A server process and its address."""
    command = [sys.executable, "-m", "regard", "serve", *options, "--port", "0", "--workers", "1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"^Regard serves .* at (http://127\.0\.0\.1:\d+)/ \(Ctrl-C", line)
        assert found, line
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def ask(url: str, path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("serve") / "log"
    with serving("spelling", "--log", str(log)) as (process, url):
        yield process, url, log


def test_an_included_model_is_served(server):
    _, url, _ = server
    found = ask(url, "/v1/generate", {"input": ["attention", ""], "n_best": 2})
    (best, second), (empty, *_) = found["outputs"]
    assert best["text"] == OUTPUT
    assert best["logp"] == pytest.approx(sum(best["logps"]), abs=1e-5)
    assert best["logp"] >= second["logp"]
    assert empty["text"] == ""
    assert ask(url, "/v1/models")["data"][0]["engine"] in ("native", "torch")


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_curl_examples_of_the_docs_run(server):
    _, url, _ = server
    commands = re.findall(r"```bash\n(curl .*?)```", DOCS, re.DOTALL)
    assert len(commands) == 5
    outputs = []
    for command in commands:
        here = command.replace("http://127.0.0.1:7342", url).replace("curl ", "curl -sSf ", 1)
        run = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=TIMEOUT)
        assert run.returncode == 0, run.stderr
        outputs.append(run.stdout)
    generated, streamed, translations, libre, models = outputs
    assert [len(one) for one in json.loads(generated)["outputs"]] == [2, 2]
    assert streamed.endswith("data: [DONE]\n\n")
    assert json.loads(translations)["data"][0]["text"] == OUTPUT
    assert json.loads(libre)["translatedText"] == OUTPUT
    assert len(json.loads(libre)["alternatives"]) == 2
    assert json.loads(models)["data"][0]["id"] == "spelling"


def test_the_python_example_of_the_docs_runs(server, capsys):
    _, url, _ = server
    (block,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    names: dict = {}
    exec(block.replace("http://127.0.0.1:7342", url), names)
    lists, streamed = capsys.readouterr().out.splitlines()
    assert lists.startswith(f"['{OUTPUT}', ")
    assert streamed == OUTPUT
    assert names["best"]["text"] == OUTPUT


def test_the_docs_name_all_options_and_metrics(server):
    from regard.serve.service_types import ServiceLimits
    from regard.web.http_limits import HttpLimits

    for group in (HttpLimits(), ServiceLimits()):
        for name in vars(group):
            assert f"`--{name.replace('_', '-')}`" in DOCS
    _, url, _ = server
    text = urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT).read().decode()
    types = dict(re.findall(r"^# TYPE (regard_\S+) (\S+)$", text, re.MULTILINE))
    for name, kind in types.items():
        assert f"`{name}" in DOCS, (name, kind)


def test_sighup_reloads_and_sigterm_ends_with_143(server):
    process, url, log = server
    before = ask(url, "/v1/models")["data"][0]
    process.send_signal(signal.SIGHUP)
    while '"event": "reloaded"' not in log.read_text():
        assert ask(url, "/v1/generate", {"input": "attention"})["outputs"][0][0]["text"] == OUTPUT
    after = ask(url, "/v1/models")["data"][0]
    assert after["fingerprint"] == before["fingerprint"]
    assert after["created"] >= before["created"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == 143
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[-2:] == ["draining", "stopped"]
    assert "bug" not in events


def test_ctrl_c_ends_with_130_with_a_closed_log():
    with serving("a=spelling", "--log", "/dev/full") as (process, url):
        assert ask(url, "/v1/generate", {"input": "attention"})["model"] == "a"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_other_engines_give_the_same_outputs(engine: str):
    pytest.importorskip(engine)
    words = ["attention", "regard", "a"]
    with serving("spelling", "--engine", engine) as (_, url):
        with urllib.request.urlopen(f"{url}/v1/models") as answer:
            assert json.load(answer)["data"][0]["engine"] == engine
        found = ask(url, "/v1/generate", {"input": words, "beam": 1})["outputs"]
    expected = [str(load("spelling", engine="native")(word, beam=1)) for word in words]
    assert [answers[0]["text"] for answers in found] == expected


def test_names_of_models(tmp_path):
    run = tmp_path / "my run"
    (run / "bundle").mkdir(parents=True)
    odd = tmp_path / "a=b"
    odd.mkdir()
    specs = model_specs([str(run / "bundle"), "x=spelling", str(odd), "spelling"], int8=True)
    assert [(spec.name, spec.folder) for spec in specs] == [
        ("my_run", run / "bundle"),
        ("x", MODELS / "spelling"),
        ("a_b", odd),
        ("spelling", MODELS / "spelling"),
    ]
    assert all(spec.int8 for spec in specs)
    with pytest.raises(RegardError, match=r"^two models are named 'spelling'; name them, such as"):
        model_specs(["spelling", "spelling"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--host", "0.0.0.0"],
            "--host 0.0.0.0 can be reached by other machines; add ",
        ),
        (["--port", "70000"], "--port must be from 0 to 65535; got 70000"),
        (["--token-file", "nothing"], "cannot read --token-file 'nothing'"),
        (["--allow-origin", "x"], "--allow-origin must be an origin such as"),
        (["--queue-texts", "0"], "--queue-texts must be above 0; got 0"),
        (["--idle-seconds", "-1"], "--idle-seconds must be above 0; got -1"),
        (["--log", "/nowhere/log"], "cannot write --log '/nowhere/log'"),
        (["--workers", "0"], "workers must be at least 1; got 0"),
    ],
)
def test_wrong_options_are_one_line(options, words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["serve", "spelling", *options, *([] if "--port" in options else ["--port", "0"])])
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert error.startswith(f"regard: {words}")
    assert error.count("\n") == 1


def test_a_missing_bundle_is_one_line(tmp_path):
    command = [sys.executable, "-m", "regard", "serve", str(tmp_path / "no"), "--port", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert run.returncode == 2
    lines = [line for line in run.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert lines[0].startswith("regard: ")
    assert "no bundle at" in lines[0]
