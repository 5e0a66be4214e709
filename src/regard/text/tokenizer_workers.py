"""Parallel tokenization: worker processes encode blocks of pairs, results keep their order.

A worker runs this file as a program and reads from its standard input. It must not import torch, so
this module imports nothing from `regard.text`. Because it is a plain program, scripts need no
__main__ guard, and a worker whose parent was killed reads the end of its input and exits.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, count, islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library

from regard.errors import RegardError

Block = tuple[list[str], list[str]]  # sources and targets
Encoded = tuple[bytes, bytes]  # concatenated ids, and int64 lengths
EncodedBlock = Sequence[Encoded]  # of the sources and of the targets
# Of a tokenizer of another project: the number of ids, and the id of all tokens beyond it.
Limit = tuple[int, int | None]
Limits = tuple[Limit | None, Limit | None]  # None: a tokenizer that Regard trained

MAX_WORKERS = 16  # one reader cannot supply more
LOCAL_BLOCKS = 16  # a small corpus is done before the first worker has started
MAX_CACHED_CHARACTERS = 2_000_000  # about 50 MB


class WorkerError(RegardError):
    """A worker process that ended too early."""


class Encoder:
    """Encodes texts to the bytes of their ids, with a cache of words.

    Every kind that Regard trains splits before a space, so the ids of a text are the concatenated
    ids of its words. Other tokenizers, which have a limit, encode whole texts.
    """

    def __init__(self, library: Library, dtype: str, limit: Limit | None = None) -> None:
        self._library, self._limit = library, limit
        self._dtype = np.dtype(dtype)
        self._cache: dict[str, bytes] = {}
        self._cached_characters = 0

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """The concatenated ids of all texts, and the number of ids per text (int64)."""
        if not texts:
            return b"", b""
        if self._limit is not None:
            return self._encode_texts(texts, *self._limit)
        words = _split_words(texts)
        new = list(set(words) - self._cache.keys())
        encodings = self._library.encode_batch_fast(new, add_special_tokens=False)
        for word, encoding in zip(new, encodings, strict=True):
            self._cache[word] = np.array(encoding.ids, self._dtype).tobytes()
        ids = list(map(self._cache.__getitem__, words))
        sizes = np.fromiter(map(len, ids), np.int64, len(ids)) // self._dtype.itemsize
        counts = np.fromiter((text.count(" ") + 1 for text in texts), np.int64, len(texts))
        lengths = np.add.reduceat(sizes, np.cumsum(counts) - counts)
        self._cached_characters += sum(map(len, new))
        if self._cached_characters > MAX_CACHED_CHARACTERS:
            self._cache.clear()
            self._cached_characters = 0
        return b"".join(ids), lengths.tobytes()

    def _encode_texts(self, texts: Sequence[str], size: int, unknown: int | None) -> Encoded:
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
        if unknown is not None:
            ids = [np.where(one < size, one, unknown) for one in ids]
        found = b"".join(one.astype(self._dtype).tobytes() for one in ids)
        return found, np.array(list(map(len, ids))).tobytes()


def _split_words(texts: Sequence[str]) -> list[str]:
    """The words of all texts, each with the space before it; a single split for speed."""
    separator = next(
        character
        for character in chain("\n", map(chr, count()))
        if character != " " and not any(character in text for text in texts)
    )
    return separator.join(texts).replace(" ", separator + " ").split(separator)


def encode_blocks(
    blocks: Iterable[Block],
    libraries: tuple[Library, Library],
    dtype: str,
    *,
    limits: Limits = (None, None),
    workers: int | None = None,
) -> Iterator[tuple[Block, EncodedBlock]]:
    """Every block with its ids, in order. `workers` is the number of processes (None: one per core;
    1: no extra process)."""
    blocks = iter(blocks)
    number = min(available_cores(), MAX_WORKERS) if workers is None else workers
    encoders = [
        Encoder(library, dtype, limit) for library, limit in zip(libraries, limits, strict=True)
    ]
    local = blocks if number <= 1 else islice(blocks, LOCAL_BLOCKS if workers is None else 0)
    for block in local:
        yield block, [encoder(texts) for encoder, texts in zip(encoders, block, strict=True)]
    first = next(blocks, None)
    if first is None:
        return
    with WorkerPool(number, libraries, dtype, limits) as pool:
        pending: deque[tuple[Block, Future[EncodedBlock]]] = deque([(first, pool.submit(first))])
        for block in blocks:
            pending.append((block, pool.submit(block)))
            if len(pending) > 2 * number:
                done, encoded = pending.popleft()
                yield done, encoded.result()
        while pending:
            done, encoded = pending.popleft()
            yield done, encoded.result()


def available_cores() -> int:
    """The number of CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerPool:
    """A pool of worker processes, each driven by its own thread."""

    def __init__(
        self,
        number: int,
        libraries: tuple[Library, Library],
        dtype: str,
        limits: Limits = (None, None),
    ) -> None:
        # -P: this folder contains a tokenizers.py that must not shadow the library.
        command = [sys.executable, "-P", str(Path(__file__))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TOKENIZERS_PARALLELISM": "false",  # one thread per process
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(number)
        setup = [library.to_str() for library in libraries], dtype, limits
        try:
            for _ in range(number):
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    bufsize=1 << 20,
                )
                self._processes.append(process)
                _send(process, setup)
                self._idle.put(process)
        except BaseException:
            self._stop()
            raise

    def submit(self, block: Block) -> Future[EncodedBlock]:
        """Encode a block in the next idle worker."""
        return self._threads.submit(self._encode, block)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def _encode(self, block: Block) -> EncodedBlock:
        process = self._idle.get()
        try:
            _send(process, block)
            assert process.stdout is not None
            encoded: EncodedBlock = pickle.load(process.stdout)
            return encoded
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise WorkerError(
                f"a tokenization process ended early with {_exit_status(process.wait())}; "
                "if memory ran out, use fewer workers"
            ) from None
        finally:
            self._idle.put(process)

    def _stop(self) -> None:
        """Kill all workers; their results have been received or are no longer needed."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            process.wait()


def _send(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    pickle.dump(message, process.stdin, protocol=5)
    process.stdin.flush()


def _exit_status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def serve_blocks() -> None:
    """The worker's main loop: read the tokenizers, then encode blocks until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    requests = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a library must not mix with the results
    try:
        libraries, dtype, limits = pickle.load(requests)
        encoders = [
            Encoder(Library.from_str(library), dtype, limit)
            for library, limit in zip(libraries, limits, strict=True)
        ]
        while True:
            block = pickle.load(requests)
            encoded = [encoder(texts) for encoder, texts in zip(encoders, block, strict=True)]
            pickle.dump(encoded, results, protocol=5)
            results.flush()
    except (EOFError, BrokenPipeError):
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    serve_blocks()
