"""`regard serve` as a process of a benchmark: start, memory, file descriptors, stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

STARTUP = 120.0  # seconds until the server must be ready


class Host:
    """A server on loopback, stopped at the end of a `with` block.

    Its output goes to a file in a temporary folder: `log` has the structured lines.
    """

    def __init__(
        self, *arguments: str, command: Sequence[str] = (sys.executable, "-m", "regard", "serve")
    ) -> None:
        self.command = [*command, *arguments, "--port", "0"]
        self.folder = tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name, "log")
        self.port = 0

    def __enter__(self) -> Host:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        limit = time.monotonic() + STARTUP
        while not (self.port and self.is_ready()):
            if self.process.poll() is not None or time.monotonic() > limit:
                self.close()
                raise SystemExit(f"the server did not start:\n{self.text()[-2_000:]}")
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", self.text()):
                self.port = int(found[1])
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self.folder.cleanup()

    def text(self) -> str:
        """Everything that the server printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def address(self) -> str:
        """The address of the server, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        """Whether the health check answers."""
        try:
            with urlopen(f"{self.address}/v2/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal to the server's own process."""
        self.process.send_signal(number)

    def workers(self) -> list[int]:
        """The worker processes: all descendants that have loaded the native engine."""
        found = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                if "engine" in Path(f"/proc/{pid}/maps").read_text():
                    found.append(pid)
        return found

    def memory(self) -> float:
        """Memory in MB of the server and its workers, shared pages counted once (PSS)."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        return sum(memory_of(pid, "Pss") for pid in pids)

    def open_files(self) -> int:
        """Open file descriptors of the server and its workers."""
        total = 0
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with contextlib.suppress(OSError):
                total += len(os.listdir(f"/proc/{pid}/fd"))
        return total

    def close(self) -> int:
        """Stop the server with SIGTERM; returns its exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            for child in map(int, children):
                found += [child, *descendants(child)]
    return found


def memory_of(pid: int, kind: str) -> float:
    """Memory of a process in MB: "Rss", or "Pss", which divides shared pages among processes."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        if found := re.search(rf"^{kind}:\s+(\d+) kB", text, re.MULTILINE):
            return int(found[1]) / 1024
    return 0.0


class Watch(threading.Thread):
    """Samples memory and open files of a server every second."""

    def __init__(self, host: Host) -> None:
        super().__init__(daemon=True)
        self.host = host
        self.samples: list[tuple[float, float, int]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        start = time.monotonic()
        while not self._ended.wait(1.0):
            seconds = time.monotonic() - start
            self.samples.append((seconds, self.host.memory(), self.host.open_files()))

    def stop(self) -> list[tuple[float, float, int]]:
        """The samples: seconds, MB, open files."""
        self._ended.set()
        self.join()
        return self.samples


def metric(host: Host, name: str) -> float:
    """The sum of a Prometheus metric over its labels."""
    with urlopen(f"{host.address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pattern = re.compile(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$")
    return sum(float(found[2]) for line in lines if (found := pattern.match(line)))


def ask(host: Host, path: str, body: dict[str, object]) -> dict[str, object]:
    """One request and its answer."""
    import urllib.request

    request = urllib.request.Request(
        host.address + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())
