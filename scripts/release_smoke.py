"""Smoke test of an installed `regard`: every check is one command a new user would run.

    python scripts/release_smoke.py ENVIRONMENT FOLDER    # ENVIRONMENT/bin/regard, run in FOLDER

Uses the standard library only. Each check prints one line; the first failure ends the program.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORD, SOUND = "attention", "AH T EH N SH AH N"
PATIENCE = 900  # seconds that a command of a busy machine may take; not a measure of speed
MOST_IMPORT_SECONDS = 0.15
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
# Prints the seconds of `import regard` and whether it imported torch.
IMPORT = """
import sys, time
start = time.perf_counter()
import regard
print(time.perf_counter() - start, "torch" in sys.modules)
"""


class ReleaseError(Exception):
    """A check that failed."""


class Installed:
    """An environment with Regard, used from a folder outside the repository."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.bin, self.folder = environment / "bin", folder
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        home = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        self.env = {**kept, **home, "PYTHONUTF8": "1"}

    def run(self, *words: str, program: str = "regard") -> str:
        """The standard output of a command that must succeed."""
        done = subprocess.run(
            [str(self.bin / program), *words],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        if done.returncode:
            failure = f"{done.stdout}\n{done.stderr}".strip()
            raise ReleaseError(f"{program} {' '.join(words)}: exit {done.returncode}\n{failure}")
        return done.stdout

    @contextmanager
    def server(self, *words: str, stop: signal.Signals, code: int) -> Iterator[str]:
        """The address of a server, which must end with this exit code when it gets `stop`."""
        process = subprocess.Popen(
            [str(self.bin / "regard"), *words], cwd=self.folder, env=self.env,
            stdout=subprocess.PIPE, stderr=(self.folder / "server.log").open("w"), text=True,
        )  # fmt: skip
        try:
            assert process.stdout
            found = next(filter(None, map(ADDRESS.search, process.stdout)), None)
            if found is None:
                log = (self.folder / "server.log").read_text()
                raise ReleaseError(f"regard {words[0]} ended without an address:\n{log}")
            yield found[0]
            process.send_signal(stop)
            if process.wait(PATIENCE) != code:
                log = (self.folder / "server.log").read_text()
                raise ReleaseError(f"regard {words[0]} ended with {process.returncode}:\n{log}")
        finally:
            process.kill()
            process.wait()


def ask(address: str, body: object = None) -> bytes:
    """The response to a GET or, with a body, to a POST; waits for a server that is starting."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return bytes(response.read())


def equal(name: str, got: object, expected: object) -> None:
    """Print the check, or raise."""
    if got != expected:
        raise ReleaseError(f"{name}: got {got!r}, expected {expected!r}")
    print(f"  ok  {name}", flush=True)


def check_import(regard: Installed) -> None:
    """`import regard` is fast and does not import torch."""
    runs = [regard.run("-c", IMPORT, program="python").split() for _ in range(5)]
    seconds = min(float(one[0]) for one in runs)  # other processes only add to it
    equal("import regard does not import torch", {one[1] for one in runs}, {"False"})
    name = f"import regard: {seconds:.3f} s (at most {MOST_IMPORT_SECONDS} s)"
    equal(name, seconds <= MOST_IMPORT_SECONDS, True)


def check_predict(regard: Installed, version: str) -> None:
    """The version, the place of the package, and one prediction on each engine."""
    equal("regard --version", regard.run("--version").split()[0], version)
    place = regard.run("-c", "import regard; print(regard.__file__)", program="python").strip()
    equal("installed in the clean environment", Path(place).is_relative_to(regard.bin.parent), True)
    native = regard.run("predict", "spelling", WORD, "--engine", "native", "--device", "cpu")
    equal("regard predict, native engine", native.strip(), SOUND)
    torch = regard.run("predict", "spelling-recurrent", WORD, "--engine", "torch")
    equal("regard predict, torch", torch.strip(), SOUND)
    facts = json.loads(regard.run("doctor", "--json"))
    equal("regard doctor", (facts["versions"]["regard"], facts["ok"]), (version, True))


def check_explore(regard: Installed) -> None:
    """The explorer starts, sends its page, traces a prediction and stops."""
    words = ("explore", "spelling", "--no-browser", "--port", "0")
    with regard.server(*words, stop=signal.SIGINT, code=0) as address:
        equal("regard explore: page", b"explorer.js" in ask(f"{address}/"), True)
        model = json.loads(ask(f"{address}/api/models"))["models"][0]["id"]
        trace = json.loads(ask(f"{address}/api/trace", {"model": model, "source": WORD}))
        letters = "".join(token["text"] for token in trace["tokens"]["source"])
        equal("regard explore: trace", letters.startswith(WORD), True)
    equal("regard explore: stops on Ctrl-C", True, True)


def check_serve(regard: Installed) -> None:
    """The server starts, answers a request and stops; skipped if there is no such command."""
    if "serve" not in regard.run("--help").split():
        print("  --  regard serve: skipped, this version has no such command", flush=True)
        return
    words = ("serve", "spelling", "--port", "0")
    with regard.server(*words, stop=signal.SIGTERM, code=143) as address:
        answer = json.loads(ask(f"{address}/v1/generate", {"input": WORD}))
        equal("regard serve: answer", answer["outputs"][0][0]["text"], SOUND)
    equal("regard serve: stops on SIGTERM", True, True)


def check_demo(regard: Installed) -> None:
    """Twenty seconds of training give a model and a report."""
    start = time.perf_counter()
    regard.run("demo", "--minutes", str(20 / 60), "--out", "demo")
    seconds = time.perf_counter() - start
    report = (regard.folder / "demo/report.html").read_text(encoding="utf-8")
    equal(f"regard demo: report after {seconds:.0f} s", "</html>" in report, True)
    answer = regard.run("predict", "demo", WORD).strip()
    equal(f"regard demo: its model answers {answer!r}", bool(answer), True)


def smoke_test(environment: Path, folder: Path, version: str, *, quick: bool = False) -> None:
    """All checks; with `quick`, only those of the installation itself."""
    regard = Installed(environment, folder)
    check_import(regard)
    check_predict(regard, version)
    if not quick:
        check_explore(regard)
        check_serve(regard)
        check_demo(regard)


if __name__ == "__main__":
    where, place = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shown = Installed(where, place).run("--version").split()[0]
    smoke_test(where, place, shown)
