"""The messages between the service and its processes: a header (length, id, kind) and a body.

Requests are JSON. Answers are JSON texts with their lengths, so that the service passes them on
without decoding them. Nothing is unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

HEADER = struct.Struct("<IIB")
ANSWERS = struct.Struct("<II")  # texts and output tokens
MAX_BODY = 1 << 31


class Kind(IntEnum):
    """The kind of a message."""

    LOAD = 1  # to a loader: load this model
    READY = 2  # a loader or a worker can serve
    FAILED = 3  # the model cannot be loaded
    FORK = 4  # to a loader: start a worker on the attached socket
    FORKED = 5
    DIED = 6  # a worker of the loader ended
    BATCH = 7  # to a worker: answer these texts
    ANSWERED = 8
    STREAM = 9  # to a worker: stream the answer to this text
    PIECE = 10
    STREAMED = 11  # the end of a stream: its answer, or an error
    CANCEL = 12  # to a worker: stop the stream


class Status(IntEnum):
    """Whether a text has answers."""

    ANSWERED = 0
    REJECTED = 1  # the body is a message for the client
    BROKEN = 2  # the body is the message of an unexpected error
    CANCELLED = 3


class Message(NamedTuple):
    """One message."""

    kind: int
    id: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class TextResult(NamedTuple):
    """The answers to one text as JSON, or an error message."""

    status: int
    body: bytes


def pack(kind: Kind, id: int = 0, body: bytes = b"") -> bytes:
    """A message as bytes."""
    return HEADER.pack(len(body), id, kind) + body


def pack_json(kind: Kind, id: int = 0, **values: Any) -> bytes:
    """A message with a JSON object as its body."""
    return pack(kind, id, json.dumps(values).encode())


def pack_results(results: Sequence[TextResult], tokens: int) -> bytes:
    """The body of an ANSWERED message; `tokens` counts those of all outputs."""
    lengths = array("I", (len(result.body) for result in results))
    statuses = bytes(result.status for result in results)
    bodies = (result.body for result in results)
    return b"".join((ANSWERS.pack(len(results), tokens), lengths.tobytes(), statuses, *bodies))


def unpack_results(body: bytes) -> tuple[bytes, list[bytes], int]:
    """The statuses, the bodies and the output tokens in an ANSWERED message."""
    count, tokens = ANSWERS.unpack_from(body)
    lengths = array("I")
    statuses_at = ANSWERS.size + count * lengths.itemsize
    lengths.frombytes(body[ANSWERS.size : statuses_at])
    start = statuses_at + count
    ends = list(accumulate(lengths, initial=start))
    bodies = [body[at:end] for at, end in pairwise(ends)]
    return body[statuses_at:start], bodies, tokens


class FrameBuffer:
    """Cuts received bytes into messages."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._have, self._need = 0, HEADER.size

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add bytes; yields every message that they complete."""
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        joined = b"".join(self._chunks) if len(self._chunks) > 1 else data
        at, end = 0, len(joined)
        while end - at >= HEADER.size:
            length, id, kind = HEADER.unpack_from(joined, at)
            stop = at + HEADER.size + length
            if stop > end:
                break
            yield Message(kind, id, joined[at + HEADER.size : stop])
            at = stop
        rest = joined[at:] if at else joined
        self._chunks, self._have, self._need = [rest], len(rest), HEADER.size
        if len(rest) >= HEADER.size:
            self._need += HEADER.unpack_from(rest)[0]


class BlockingChannel:
    """Messages over a blocking socket, as a loader or worker uses it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, message: bytes) -> None:
        """Send a whole message."""
        self.socket.sendall(message)

    def receive(self) -> Message | None:
        """The next message; None when the other side is gone."""
        header = self._read(HEADER.size)
        if header is None:
            return None
        length, id, kind = HEADER.unpack(header)
        body = self._read(length)
        return None if body is None else Message(kind, id, body)

    def receive_socket(self) -> tuple[Message, int | None] | None:
        """The next message without a body, and the file descriptor sent with it."""
        data, files, _, _ = socket.recv_fds(self.socket, HEADER.size, 1)
        if len(data) < HEADER.size:
            return None
        _, id, kind = HEADER.unpack(data)
        return Message(kind, id, b""), files[0] if files else None

    def _read(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)
