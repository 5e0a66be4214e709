"""The loop of a worker process: answers batches and streams on one socket until it is closed."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Mapping
from typing import Any

from regard.serve.frames import (
    BlockingChannel,
    Kind,
    Message,
    Status,
    TextResult,
    pack,
    pack_results,
)
from regard.serve.worker_answers import WorkerAnswers, failure


def serve_socket(answers: WorkerAnswers, connection: socket.socket) -> None:
    """Answer until the service closes the socket or disappears."""
    channel = BlockingChannel(connection)
    exit_on_hangup(connection)
    channel.send(pack(Kind.READY, os.getpid()))
    while (frame := channel.receive()) is not None:
        if frame.kind == Kind.BATCH:
            request = frame.json()
            results, tokens = answers.batch(
                request["texts"], request["options"], alignment=request["alignment"]
            )
            channel.send(pack(Kind.ANSWERED, frame.id, pack_results(results, tokens)))
        elif frame.kind == Kind.STREAM:
            _stream(answers, channel, frame)
        # a CANCEL that comes too late has nothing to stop


def exit_on_hangup(connection: socket.socket) -> None:
    """End this process when the other side of a socket is gone, even during a search."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLHUP)

    def watch() -> None:
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _stream(answers: WorkerAnswers, channel: BlockingChannel, frame: Message) -> None:
    request = frame.json()
    text, options = request["text"], request["options"]
    try:
        for piece in answers.stream(text, options):
            if _is_cancelled(channel):
                _end_stream(channel, frame.id, TextResult(Status.CANCELLED, b""), 0)
                return
            channel.send(pack(Kind.PIECE, frame.id, piece.encode()))
    except Exception as error:  # the worker reports any error and continues
        _end_stream(channel, frame.id, failure(error), 0)
        return
    results, tokens = answers.batch([text], _one_answer(options), alignment=False)
    _end_stream(channel, frame.id, results[0], tokens)


def _one_answer(options: Mapping[str, Any]) -> dict[str, Any]:
    return {**options, "n_best": 1}


def _is_cancelled(channel: BlockingChannel) -> bool:
    """Whether a message came: during a stream, only its cancellation can."""
    readable, _, _ = select.select([channel.socket], [], [], 0)
    return bool(readable)


def _end_stream(channel: BlockingChannel, id: int, result: TextResult, tokens: int) -> None:
    channel.send(pack(Kind.STREAMED, id, pack_results([result], tokens)))
