"""A class at one explorer: 30 simulated users for five minutes.

    python benchmarks/classroom.py                           # five minutes
    python benchmarks/classroom.py --users 8 --minutes 0.5   # a trial

Starts `regard explore --host 0.0.0.0` with its token on the included models and a model with a
training film. Each user opens the page and then acts every four seconds on average: enters texts,
clicks numbers, edits, ablates heads, moves the film, does lessons. The users run on the same cores.

Before the class starts, the server's cache of traces is filled, so that memory no longer grows by
it. Its ceiling is the memory with all models open and the cap of that cache.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from classroom_users import Client, Tally, User
from harness import Check, report

from regard.explore.trace_store import MAX_BYTES, MAX_TRACES
from regard.pretrained import MODELS

sys.path.append(str(Path(__file__).parents[1]))
from tests.explore.films import save_run  # weights that move from random ones to trained ones

SLOWEST = 3.0  # seconds: the 95th percentile of a trace
GROWTH = 1.05  # peak memory of the second half of the time over that of the first half
SAMPLE = 0.5  # seconds between two readings of the memory


def resident(pid: int) -> float:
    """The resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def start(folder: Path) -> tuple[subprocess.Popen[str], int, str]:
    """The server on all addresses of this machine, its port and its token."""
    film = save_run(folder / "film")
    models = [*sorted(path.parent for path in MODELS.glob("*/manifest.json")), film]
    command = [sys.executable, "-m", "regard", "explore", *map(str, models)]
    server = subprocess.Popen(
        [*command, "--host", "0.0.0.0", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout
    found = re.search(r":(\d+)/\?token=(\S+)", server.stdout.readline())
    assert found, "the server printed no address with a token"
    return server, int(found[1]), found[2]


def attend(port: int, token: str, tally: Tally, seed: int, think: float, until: float) -> None:
    """One user from start to end."""
    try:
        User(Client(port, token, tally), seed, think).study(until)
    except Exception as error:
        tally.errors.append(f"user {seed}: {type(error).__name__}: {error}")


@dataclass
class Memory:
    """The server's resident memory in MB: with its models open, with a full cache, in the class."""

    base: float = 0.0
    filled: float = 0.0
    samples: list[tuple[float, float]] = field(default_factory=list)  # seconds, MB

    def peak(self, start: float, end: float) -> float:
        """The largest sample between two times in seconds."""
        return max(size for at, size in self.samples if start <= at < end)


def warm_up(pid: int, port: int, token: str, memory: Memory) -> None:
    """Open every model, then fill the cache of traces."""
    with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        assert answer.status == 200
    tally = Tally()
    user = User(Client(port, token, tally), -1, 0)
    for model in user.models:
        user.open_model(model)
    memory.base = resident(pid)
    for k in range(MAX_TRACES):
        user.model = user.models[k % len(user.models)]
        user.enter_text()
    memory.filled = resident(pid)
    assert not tally.errors, tally.errors[0]


def hold_class(
    pid: int, port: int, token: str, options: argparse.Namespace, memory: Memory
) -> Tally:
    """All users at once; reads the memory meanwhile."""
    tally, begin = Tally(), time.monotonic()
    end = begin + 60 * options.minutes
    users = [
        threading.Thread(
            target=attend, args=(port, token, tally, seed, options.think, end), daemon=True
        )
        for seed in range(options.users)
    ]
    for user in users:
        user.start()
    while any(user.is_alive() for user in users) and time.monotonic() < end + 60:
        memory.samples.append((time.monotonic() - begin, resident(pid)))
        time.sleep(SAMPLE)
    tally.errors += ["a user did not finish"] * sum(user.is_alive() for user in users)
    return tally


def print_times(tally: Tally) -> None:
    """The first errors, and the times of each kind of request."""
    for error in tally.errors[:20]:
        print(error)
    for kind in sorted(tally.times):
        count, half = len(tally.times[kind]), tally.percentile(kind, 0.5)
        print(f"{kind:16} {count:6}  p50 {half:.3f} s  p95 {tally.percentile(kind, 0.95):.3f} s")


def checks_of(tally: Tally, memory: Memory, options: argparse.Namespace) -> list[Check]:
    """One check for each figure."""
    errors, traces = len(tally.errors), len(tally.times.get("trace", []))
    slow, explained = tally.percentile("trace", 0.95), tally.percentile("explain", 0.95)
    acted = tally.requests / (60 * options.minutes)
    middle = 30 * options.minutes
    first, second = memory.peak(0, middle), memory.peak(middle, float("inf"))
    peak, ceiling = max(first, second), memory.base + MAX_BYTES / 2**20
    return [
        Check("users", options.users, None, 30, options.users >= 30),
        Check("minutes", options.minutes, None, 5, options.minutes >= 5),
        Check("cores, shared with the users", os.cpu_count() or 0, None, None, True),
        Check("requests per second", acted, None, None, True),
        Check("traces", traces, None, None, traces > 0),
        Check("errors", errors, None, 0, errors == 0),
        Check("requests that waited for a busy server", tally.retries, None, None, True),
        Check("trace, median, s", tally.percentile("trace", 0.5), None, None, True),
        Check("trace, 95th percentile, s", slow, None, SLOWEST, slow <= SLOWEST),
        Check("explanation, 95th percentile, s", explained, None, None, True),
        Check("memory with all models open, MB", memory.base, None, None, True),
        Check("memory with a full cache of traces, MB", memory.filled, None, None, True),
        Check("peak memory, MB", peak, ceiling, ceiling, peak <= ceiling),
        Check(
            "peak memory, second half over first",
            second / first,
            None,
            GROWTH,
            second <= GROWTH * first,
        ),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--think", type=float, default=4.0, help="mean pause in seconds")
    options = parser.parse_args()
    memory = Memory()
    with tempfile.TemporaryDirectory() as folder:
        server, port, token = start(Path(folder))
        try:
            warm_up(server.pid, port, token, memory)
            tally = hold_class(server.pid, port, token, options, memory)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)
    print_times(tally)
    report("classroom", checks_of(tally, memory, options))


if __name__ == "__main__":
    main()
