"""Messages between processes: any cut into chunks gives the same messages."""

import random
import socket

from regard.serve.frames import (
    BlockingChannel,
    FrameBuffer,
    Kind,
    TextResult,
    pack,
    pack_json,
    pack_results,
    unpack_results,
)

MESSAGES = [
    pack(Kind.CANCEL, 7),
    pack_json(Kind.BATCH, 2**32 - 1, texts=["é\ud800", ""]),
    pack(Kind.PIECE, 1, b"x" * 70_000),
    pack(Kind.READY),
]


def test_chunks_of_any_size_give_the_same_messages():
    stream = b"".join(MESSAGES)
    for seed in range(20):
        chance, buffer, found, at = random.Random(seed), FrameBuffer(), [], 0
        while at < len(stream):
            size = chance.choice([1, 3, 9, 5_000, 200_000])
            found += buffer.feed(stream[at : at + size])
            at += size
        assert [pack(Kind(frame.kind), frame.id, frame.body) for frame in found] == MESSAGES
    assert found[1].json() == {"texts": ["é\ud800", ""]}


def test_results_come_back_with_their_statuses():
    results = [TextResult(0, b"[1]"), TextResult(1, b"no"), TextResult(0, b"")]
    assert unpack_results(pack_results(results, 12)) == (bytes([0, 1, 0]), [b"[1]", b"no", b""], 12)
    assert unpack_results(pack_results([], 0)) == (b"", [], 0)


def test_a_closed_socket_ends_the_messages():
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(pack(Kind.PIECE, 3, b"abc") + b"\0\0")
        channel = BlockingChannel(theirs)
        frame = channel.receive()
        assert frame is not None
        assert (frame.kind, frame.id, frame.body) == (Kind.PIECE, 3, b"abc")
        assert channel.receive() is None
