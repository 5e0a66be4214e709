"""Clients of the serving benchmark: they compare every output with offline prediction.

Closed loop: each client sends its next request when it has the answer. Open loop: requests arrive
at random times at a given rate (a Poisson process), whatever the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

PATIENCE = 90.0  # seconds after which a request without any response is lost
IDLE = 20.0  # seconds after which a client closes an idle connection, before the server does
BATCH_PATH = "/v1/generate"


@dataclass
class Tally:
    """What became of the requests."""

    sent: int = 0
    answered: int = 0  # with status 200 and the expected outputs
    wrong: int = 0  # with status 200 and other outputs
    lost: int = 0  # without a complete response
    duplicated: int = 0  # bytes after a response that nobody asked for
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # of answered requests
    times: list[float] = field(default_factory=list)  # when they were answered

    def percentile(self, share: float) -> float:
        """The latency in seconds that this share of the answered requests stays below."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    @property
    def faults(self) -> int:
        """Requests that are lost, wrong or duplicated."""
        return self.lost + self.wrong + self.duplicated

    @property
    def rejected(self) -> int:
        """Requests that got a clear refusal: overload, draining, or a lost worker."""
        return sum(self.statuses[status] for status in (429, 503, 504))


class Connection:
    """One keep-alive connection of HTTP/1.1."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect if it is not connected, or if the server has closed an idle connection."""
        ended = self.reader is not None and self.reader.at_eof()
        if self.writer is None or self.writer.is_closing() or ended:
            self.close()
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    def close(self) -> None:
        """Drop the connection, whatever it is doing."""
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None

    async def send(self, body: bytes, path: str = BATCH_PATH) -> None:
        """Send one request."""
        await self.open()
        assert self.writer
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """The status and body of one response."""
        assert self.reader
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return int(status.split()[1]), body

    def has_more(self) -> bool:
        """Whether bytes arrived that belong to no request."""
        return bool(self.reader is not None and self.reader._buffer)  # type: ignore[attr-defined]


Expected = Mapping[str, Sequence[str]]  # text → outputs that are right


class Load:
    """Requests for some texts whose outputs are known, with the tally of their responses."""

    def __init__(
        self,
        port: int,
        expected: Expected,
        *,
        size: int = 1,
        options: Mapping[str, object] | None = None,
        seed: int = 1,
    ) -> None:
        self.port, self.expected, self.size = port, expected, size
        self.texts, self.options = list(expected), dict(options or {})
        self.random, self.tally = random.Random(seed), Tally()
        self.stopping = False

    def choose(self) -> list[str]:
        """The texts of the next request."""
        return self.random.sample(self.texts, self.size)

    def body(self, texts: Sequence[str]) -> bytes:
        """A request: one text, or a list."""
        given = texts[0] if len(texts) == 1 else list(texts)
        return json.dumps({"input": given, **self.options}).encode()

    def is_right(self, texts: Sequence[str], body: bytes) -> bool:
        """Whether a response has the expected output of each text, in order."""
        outputs = [answers[0]["text"] for answers in answers_of(body)]
        if len(outputs) != len(texts):
            return False
        return all(out in self.expected[text] for text, out in zip(texts, outputs, strict=True))

    async def ask(self, connection: Connection) -> None:
        """One request and its response."""
        texts, start = self.choose(), time.monotonic()
        self.tally.sent += 1
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.send(self.body(texts))
                status, body = await connection.receive()
        except (OSError, EOFError, TimeoutError):
            connection.close()
            self.tally.lost += 1
            return
        self.tally.statuses[status] += 1
        self.tally.duplicated += connection.has_more()
        if status != 200:
            return
        if self.is_right(texts, body):
            now = time.monotonic()
            self.tally.answered += 1
            self.tally.latencies.append(now - start)
            self.tally.times.append(now)
        else:
            self.tally.wrong += 1

    async def closed(self, clients: int, seconds: float) -> Tally:
        """Some clients that send one request after the other for some time."""
        end = time.monotonic() + seconds

        async def client() -> None:
            connection = Connection(self.port)
            while time.monotonic() < end and not self.stopping:
                status = self.tally.rejected
                await self.ask(connection)
                if self.tally.rejected > status:
                    await asyncio.sleep(0.05)
            connection.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        return self.tally

    async def open(self, rate: float, seconds: float) -> Tally:
        """Requests at random times, `rate` per second on average, for some time."""
        free: list[tuple[float, Connection]] = []  # since when, longest first
        tasks: set[asyncio.Task[None]] = set()

        async def one() -> None:
            while free and free[0][0] < time.monotonic() - IDLE:
                free.pop(0)[1].close()
            connection = free.pop()[1] if free else Connection(self.port)
            await self.ask(connection)
            free.append((time.monotonic(), connection))

        start = due = time.monotonic()
        while due < start + seconds and not self.stopping:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += self.random.expovariate(rate)
        await asyncio.gather(*tasks)
        for _, connection in free:
            connection.close()
        return self.tally


def answers_of(body: bytes) -> list[list[dict[str, str]]]:
    """The answers to each text in a response of /v1/generate."""
    outputs: list[list[dict[str, str]]] = json.loads(body)["outputs"]
    return outputs


async def disturb(
    act: Callable[[], Awaitable[None]], every: float, load: asyncio.Task[Tally]
) -> int:
    """Repeat a disturbance while a load runs; returns how often."""
    count = 0
    while not load.done():
        with contextlib.suppress(OSError, EOFError, TimeoutError, ProcessLookupError):
            await act()
        count += 1
        await asyncio.wait([load], timeout=every)
    return count
