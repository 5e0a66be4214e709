"""Servers that the commands of a page start: real processes on free ports of this machine."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = "http://127.0.0.1:7342"  # the address in the pages
TIMEOUT = 180  # seconds: a bound for a hung server, never a measure of speed
LIFETIME = 900  # seconds after which a server that nobody stopped ends


@dataclass
class PageServer:
    """A running `regard serve` or `regard explore`, and its address."""

    process: subprocess.Popen[str]
    address: str

    @classmethod
    def start(cls, words: list[str], folder: Path) -> "PageServer":
        """Run `regard …`, which must print its address and answer there."""
        more = ["--port", "0", *(["--no-browser"] if words[0] == "explore" else [])]
        process = subprocess.Popen(
            [sys.executable, "-m", "regard", *words, *more],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.alarm(LIFETIME),
        )
        assert process.stdout
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if not found:
            process.kill()
            raise AssertionError(f"regard {' '.join(words)}: {process.communicate()[1]}")
        server = cls(process, found[0])
        with urllib.request.urlopen(server.address + "/", timeout=TIMEOUT) as page:
            assert page.status == 200
        return server

    def here(self, code: str) -> str:
        """Code of a page that asks this server."""
        return code.replace(SHOWN, self.address).replace(
            "regard.Client()", f"regard.Client({self.address!r})"
        )

    def stop(self) -> None:
        """End the server as a service manager does; it must not fail."""
        self.process.send_signal(signal.SIGTERM)
        _, error = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode in (0, 143, -signal.SIGTERM), error
        assert "Traceback" not in error, error
