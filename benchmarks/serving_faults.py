"""Faults that are injected while clients send requests: nothing may be lost, wrong or duplicated.

Every output is compared with offline prediction. A request may be rejected with 429, 503 or 504,
which the client sees; it may never end without a response.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.request import urlopen

from harness import Check
from serving_clients import Connection, Expected, Load, Tally, disturb
from serving_host import Host

CLIENTS, SIZE = 16, 4


def loaded(host: Host, expected: Expected, **options: object) -> Load:
    """The load that runs beside each fault."""
    return Load(host.port, expected, size=SIZE, options=options)


async def beside(
    host: Host, load: Load, seconds: float, act: Callable[[], Awaitable[None]], every: float
) -> tuple[Tally, int]:
    """Run the load, disturbed again and again."""
    task = asyncio.create_task(load.closed(CLIENTS, seconds))
    count = await disturb(act, every, task)
    return await task, count


def check(name: str, tally: Tally, count: int) -> Check:
    """A fault's figure: requests lost, wrong or duplicated."""
    print(
        f"{name}: {count} times; {tally.sent:,} requests, {tally.answered:,} answered, "
        f"{tally.rejected:,} rejected {dict(tally.statuses)}, {tally.lost} lost, "
        f"{tally.wrong} wrong, {tally.duplicated} duplicated",
        flush=True,
    )
    named = f"{name}: requests lost, wrong or duplicated (of {tally.sent:,})"
    answered = tally.answered + tally.rejected + tally.faults == tally.sent
    return Check(named, tally.faults, 0, 0, tally.faults == 0 and tally.answered > 0 and answered)


def kill_workers(model: str, expected: Expected, seconds: float) -> Check:
    """kill -9 of a worker every second."""
    with Host(model) as host:

        async def kill() -> None:
            if workers := host.workers():
                os.kill(random.choice(workers), signal.SIGKILL)

        load = loaded(host, expected)
        tally, count = asyncio.run(beside(host, load, seconds, kill, 1.0))
    return check("a worker killed every second", tally, count)


def disconnect(model: str, expected: Expected, seconds: float) -> Check:
    """Clients that go away after they sent a request, or in the middle of it."""
    with Host(model) as host:
        load = loaded(host, expected)

        async def leave() -> None:
            connection = Connection(host.port)
            body = load.body(load.choose())
            await connection.send(body)
            await asyncio.sleep(random.random() * 0.01)
            connection.close()
            await connection.open()
            assert connection.writer
            connection.writer.write(b"POST /v1/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-")
            connection.close()

        tally, count = asyncio.run(beside(host, load, seconds, leave, 0.01))
    return check("clients that disconnect", tally, count)


def slow_readers(model: str, expected: Expected, seconds: float) -> Check:
    """Clients that ask for much and do not read."""
    with Host(model) as host:
        held: list[Connection] = []
        load = loaded(host, expected)
        many = Load(host.port, expected, size=256, options={"n_best": 8, "beam": 8})

        async def hold() -> None:
            connection = Connection(host.port)
            await connection.send(many.body(many.choose()))
            held.append(connection)
            if len(held) > 20:
                held.pop(0).close()

        tally, count = asyncio.run(beside(host, load, seconds, hold, 0.5))
    return check("slow readers", tally, count)


def half_open(model: str, expected: Expected, seconds: float) -> Check:
    """200 connections that send nothing, or half a request."""
    with Host(model) as host:
        held: list[Connection] = []

        async def connect() -> None:
            for part in (
                b"",
                b"POST /v1/gen",
                b"POST /v1/generate HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
            ):
                if len(held) < 200:
                    connection = Connection(host.port)
                    await connection.open()
                    assert connection.writer
                    connection.writer.write(part)
                    held.append(connection)

        load = loaded(host, expected)
        tally, _ = asyncio.run(beside(host, load, seconds, connect, 0.02))
    return check("half-open connections", tally, len(held))


def swap(model: str, other: str, expected: Expected, seconds: float) -> Check:
    """The bundle is replaced by another one and loaded again, to and fro; outputs are of either."""
    from regard.loading import find_model

    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "model")
        names = [str(find_model(name)) for name in (model, other)]
        shutil.copytree(names[0], link)
        with Host(f"model={link}") as host:
            state = {"next": 1}

            async def exchange() -> None:
                fresh = Path(folder, f"copy-{state['next']}")
                shutil.copytree(names[state["next"] % 2], fresh)
                link.rename(Path(folder, f"old-{state['next']}"))
                fresh.rename(link)
                state["next"] += 1
                before = await asyncio.to_thread(loaded_model, host)
                host.signal(signal.SIGHUP)
                limit = time.monotonic() + 30
                while await asyncio.to_thread(loaded_model, host) == before:
                    if time.monotonic() > limit:
                        raise SystemExit("the server did not load the other bundle")
                    await asyncio.sleep(0.1)

            load = loaded(host, expected)
            tally, count = asyncio.run(beside(host, load, seconds, exchange, 2.0))
    return check("bundles exchanged", tally, count)


def loaded_model(host: Host) -> object:
    """What the server says about its model: another bundle has another fingerprint."""
    with urlopen(f"{host.address}/v1/models", timeout=10) as answer:
        return json.loads(answer.read())


def full_disk(model: str, expected: Expected, seconds: float) -> Check:
    """Logs go to a full disk."""
    with Host(model, "--log", "/dev/full") as host:

        async def nothing() -> None:
            return None

        tally, _ = asyncio.run(beside(host, loaded(host, expected), seconds, nothing, 1.0))
    return check("logs on a full disk", tally, 1)


def clock_jump(model: str, expected: Expected, seconds: float) -> Check | None:
    """The clock jumps by hours, forwards and back (libfaketime)."""
    if shutil.which("faketime") is None:
        print("faketime is not installed: the clock jump is left out")
        return None
    library = next(Path("/usr/lib").rglob("libfaketime.so.1"))
    with tempfile.TemporaryDirectory() as folder:
        clock = Path(folder, "clock")
        clock.write_text("+0")
        settings = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        command += [sys.executable, "-m", "regard", "serve"]
        with Host(model, command=command) as host:

            async def jump() -> None:
                clock.write_text(random.choice(["+0", "+5h", "-5h", "+400d"]))

            tally, count = asyncio.run(beside(host, loaded(host, expected), seconds, jump, 1.0))
    return check("clock jumps", tally, count)


def terminate(model: str, expected: Expected, rounds: int) -> Check:
    """SIGTERM under load: requests that were sent are answered, and the exit status is 143."""
    total = Tally()
    for _ in range(rounds):
        with Host(model) as host:
            load = loaded(host, expected)

            async def stop(host: Host = host, load: Load = load) -> Tally:
                task = asyncio.create_task(load.closed(CLIENTS, 60.0))
                await asyncio.sleep(1.0)
                load.stopping = True  # what is sent already must be answered
                host.signal(signal.SIGTERM)
                return await task

            tally = asyncio.run(stop())
            start = time.monotonic()
            status = host.close()
            if status != 143:
                print(f"exit status {status} after {time.monotonic() - start:.1f} s")
                total.lost += 1
            total.sent, total.answered = total.sent + tally.sent, total.answered + tally.answered
            total.lost, total.wrong = total.lost + tally.lost, total.wrong + tally.wrong
            total.statuses += tally.statuses
    return check("SIGTERM", total, rounds)


def all_faults(
    model: str, other: str, expected: Expected, both: Expected, seconds: float
) -> list[Check]:
    """Every fault in turn; `both` has the outputs of both models."""
    found = [
        kill_workers(model, expected, seconds),
        disconnect(model, expected, seconds),
        slow_readers(model, expected, seconds),
        half_open(model, expected, seconds),
        swap(model, other, both, seconds),
        full_disk(model, expected, seconds),
        clock_jump(model, expected, seconds),
        terminate(model, expected, 5),
    ]
    return [one for one in found if one is not None]
