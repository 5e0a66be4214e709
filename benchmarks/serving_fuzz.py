"""Malformed requests to `regard serve`: no 5xx, no traceback, no growth of memory or files.

Sends mutated requests (bodies, headers, encodings, sizes, types, paths, framing) over raw sockets
to a real server of the included model, with a valid request now and then, whose output must be
right. Example: python benchmarks/serving_fuzz.py --requests 100000
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PATHS = ["/v1/generate", "/v1/generate", "/v1/translations", "/translate", "/v1/models"]
RARE_PATHS = [
    "/",
    "/docs",
    "/metrics",
    "/languages",
    "/v2/health/ready",
    "/nowhere",
    "/v1/models/x",
]
TYPES = [
    "application/json", "application/json; charset=utf-8", "text/plain", "", "application/xml",
    "application/x-www-form-urlencoded", "application/json; charset=utf-16", "multipart/form-data",
    "\xff\xfe", "a" * 5_000,
]  # fmt: skip
VALUES = [
    None, True, False, 0, -1, 1, 4, 10**20, -(10**400), 0.5, 1e308, "", "a", "attention", "\0",
    "\u202e\ufeff", "💥" * 50, "é" * 3_000, [], [[]], {}, {"a": 1}, ["a", 1], ["a"] * 3, [None],
    "x" * 20_000, ["word"] * 2_000,
]  # fmt: skip
RAW = [
    b"NaN", b"Infinity", b"-Infinity", b"1e999", rb'"\ud800"', rb'"\udfff\ud800"', b'"\xff\xfe"',
    b"0x1", b"'a'", b"[" * 3_000, b'{"a":' * 2_000, b"9" * 5_000, b"tru", b'"\x01"', b"1.", b"--1",
]  # fmt: skip
FIELDS = [
    "input", "model", "stream", "deadline", "beam", "n_best", "length_penalty", "min_length",
    "max_length", "prefix", "ban", "require", "repetition_penalty", "no_repeat_ngram", "sample",
    "temperature", "top_k", "top_p", "min_p", "seed", "alignment", "source_language",
    "target_language", "q", "source", "target", "format", "alternatives", "api_key", "x", "", "é",
]  # fmt: skip
THREADS = 32
IDLE = 1  # seconds that the server waits for the rest of a request
VALID = ("attention", "AH T EH N SH AH N")


class RequestFuzzer:
    """Makes requests that are wrong in one or several ways."""

    def __init__(self, draw: random.Random, port: int) -> None:
        self.draw, self.port = draw, port

    def request(self) -> bytes:
        """The bytes of one request."""
        draw, body = self.draw, self._body()
        method = draw.choice(["POST"] * 60 + ["GET", "HEAD", "PUT", "OPTIONS", "BREW", "post", ""])
        path = draw.choice(PATHS * 4 + RARE_PATHS) + draw.choice(
            [""] * 40 + ["?a=%ff&b", "/%00", " x"]
        )
        version = draw.choice(["HTTP/1.1"] * 80 + ["HTTP/1.0", "HTTP/2.0", "HTTP/0.9", ""])
        headers = [f"host: {self._host()}", f"content-type: {draw.choice(TYPES[:2] * 30 + TYPES)}"]
        headers += self._extra_headers()
        framed, length = self._framed(body)
        draw.shuffle(headers)
        head = "\r\n".join([f"{method} {path} {version}", *headers, *length, "", ""])
        content = head.encode("latin-1", "replace") + framed
        if draw.random() < 0.08:
            content = self._damaged(content)
        return content

    def _host(self) -> str:
        return self.draw.choice(
            [f"127.0.0.1:{self.port}"] * 20 + ["evil.example", "", "[", "a" * 999]
        )

    def _extra_headers(self) -> list[str]:
        draw = self.draw
        choices = [
            "origin: http://evil.example", "origin: null", "authorization: Bearer x", "expect: x",
            "expect: 100-continue", "content-encoding: gzip",
            "upgrade: websocket\r\nconnection: upgrade", "x-" + "y" * 60_000 + ": 1",
            "accept: \x01", "connection: close", "te: trailers", "bad header",
        ]  # fmt: skip
        return [draw.choice(choices) for _ in range(draw.choice([0] * 9 + [1, 2]))]

    def _framed(self, body: bytes) -> tuple[bytes, list[str]]:
        """The body as it is sent, and the headers that frame it."""
        kind = self.draw.random()
        if kind < 0.88:
            return body, [f"content-length: {len(body)}"]
        if kind < 0.95:
            sizes = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:]) if part]
            return b"".join(sizes) + b"0\r\n\r\n", ["transfer-encoding: chunked"]
        wrong = ["-1", "x", "1e3", str(10**30), str(max(0, len(body) - 3)), "5, 5", "+5", "0x5"]
        return body, [f"content-length: {self.draw.choice(wrong)}"]

    def _body(self) -> bytes:
        draw, kind = self.draw, self.draw.random()
        if kind < 0.08:
            return draw.randbytes(draw.choice([0, 1, 10, 1_000, 70_000]))
        if kind < 0.14:
            return b"&".join(
                b"%b=%b"
                % (draw.choice(FIELDS).encode(), draw.choice([b"", b"a", b"%ff", b"\xff", b"%"]))
                for _ in range(draw.randint(0, 6))
            )
        members = (
            [] if draw.random() < 0.1 else [b'"input": "attention"', b'"q": "a"', b'"target": "x"']
        )
        members = members[: draw.choice([1, 1, 1, 3])]
        for _ in range(draw.choice([0, 1, 1, 2, 3])):
            raw = draw.random() < 0.25
            value = draw.choice(RAW) if raw else json.dumps(draw.choice(VALUES)).encode()
            members.append(json.dumps(draw.choice(FIELDS)).encode() + b": " + value)
        text = b"{" + b", ".join(members) + b"}"
        encoding = draw.random()
        if encoding < 0.02:
            return text.decode("utf-8", "replace").encode("utf-16")
        return self._damaged(text) if encoding < 0.1 else text

    def _damaged(self, content: bytes) -> bytes:
        """The same with bytes flipped, removed, repeated or cut off."""
        draw, found = self.draw, bytearray(content)
        for _ in range(draw.randint(1, 4)):
            place, kind = draw.randrange(len(found) + 1), draw.randrange(4)
            if kind == 0 and place < len(found):
                found[place] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del found[place : place + draw.randint(1, 9)]
            elif kind == 2:
                found[place:place] = draw.randbytes(draw.randint(1, 9))
            else:
                del found[place:]
        return bytes(found)


def status_of(connection: socket.socket, content: bytes) -> int | None:
    """The status of the response; None if the server closes the connection without one."""
    connection.settimeout(60)
    received = b""
    with contextlib.suppress(OSError):
        connection.sendall(content)
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in received or b" 100 " in received[:20]:
            received = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
            part = connection.recv(65_536)
            if not part:
                break
            received += part
    found = re.match(rb"HTTP/1\.[01] (\d{3})", received)
    assert b"Traceback" not in received
    return int(found[1]) if found else None


def usage(pid: int) -> tuple[int, int]:
    """Resident bytes and open files of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def check_valid(port: int) -> bool:
    """Whether a valid request gets its output."""
    body = json.dumps({"input": VALID[0]}).encode()
    head = f"POST /v1/generate HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(head.encode() + body)
        response = b""
        while part := connection.recv(65_536):
            response += part
    answers = json.loads(response.partition(b"\r\n\r\n")[2])
    return answers["outputs"][0][0]["text"] == VALID[1]


def fuzz(count: int, seed: int) -> dict:
    """Send `count` requests to a server of its own; returns what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "regard", "serve", "spelling", "--port", "0"]
        command += ["--log", str(log), "--idle-seconds", str(IDLE)]
        errors = (Path(folder) / "stderr").open("w+")
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert server.stdout is not None
        port = int(re.search(r":(\d+)/", server.stdout.readline())[1])  # type: ignore[index]
        try:
            return _send_all(count, seed, server.pid, port) | {
                "exit": _ended(server),
                "bugs": log.read_text().count('"event": "bug"'),
                "stderr": Path(errors.name).read_text()[-2_000:],
            }
        finally:
            server.kill()
            server.wait()
            errors.close()


def _ended(server: subprocess.Popen) -> int:
    server.send_signal(signal.SIGTERM)
    return server.wait(60)


def _send_all(count: int, seed: int, pid: int, port: int) -> dict:
    fuzzer = RequestFuzzer(random.Random(seed), port)
    statuses: Counter[str] = Counter()
    memory, files, wrong = [], [], 0
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, count, max(THREADS, count // 100)):
            size = min(max(THREADS, count // 100), count - first)
            contents = [fuzzer.request() for _ in range(size)]
            for content, status in zip(contents, pool.map(send(port), contents), strict=True):
                statuses[str(status)] += 1
                if status is not None and status >= 500:
                    print(f"{status}: {content[:300]!r}", file=sys.stderr)
            wrong += not check_valid(port)
            time.sleep(0.2)  # closed connections are removed
            resident, opened = usage(pid)
            memory.append(resident)
            files.append(opened)
    return {
        "seconds": time.perf_counter() - start,
        "statuses": dict(sorted(statuses.items())),
        "memory": memory,
        "files": files,
        "wrong": wrong,
    }


def send(port: int) -> Callable[[bytes], int | None]:
    """A function that sends one request over a connection of its own."""

    def run(content: bytes) -> int | None:
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            return status_of(connection, content)

    return run


def main() -> None:
    """Send the requests, print a table and the JSON line."""
    import harness  # it needs torch, the fuzzer does not

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seen = fuzz(options.requests, options.seed)
    server_errors = sum(
        number for status, number in seen["statuses"].items() if status.startswith("5")
    )
    half = len(seen["memory"]) // 2
    growth = max(seen["memory"][half:]) / max(seen["memory"][:half]) - 1 if half else 0.0
    more_files = max(seen["files"][half:]) - max(seen["files"][:half]) if half else 0
    bad_exit = seen["exit"] != 128 + signal.SIGTERM
    checks = [
        harness.Check("responses of 5xx", server_errors, None, 0, server_errors == 0),
        harness.Check("bugs in the log", seen["bugs"], None, 0, seen["bugs"] == 0),
        harness.Check("lines on stderr", len(seen["stderr"]), None, 0, not seen["stderr"]),
        harness.Check("wrong outputs", seen["wrong"], None, 0, seen["wrong"] == 0),
        harness.Check("growth of memory, second half", growth, None, 0.02, growth <= 0.02),
        harness.Check("more open files, second half", more_files, None, 2, more_files <= 2),
        harness.Check("wrong exit status", bad_exit, None, 0, not bad_exit),
    ]
    print(json.dumps({"requests": options.requests, **seen}))
    harness.report("serving_fuzz", checks)


if __name__ == "__main__":
    main()
