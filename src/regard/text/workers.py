"""All cores at tokenising: programs that encode blocks side by side, their answers kept in order."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from regard.errors import RegardError
from regard.text import worker
from regard.text.tokenizers import Tokenizer

Block = tuple[list[str], list[str]]  # sources and targets
Encoded = tuple[bytes, bytes]  # ids end to end, and int64 lengths
Answer = Sequence[Encoded]  # of the sources and of the targets

MOST_WORKERS = 16  # one reader cannot feed more
BLOCKS_HERE = 16  # a small corpus is done before the first worker is up


class WorkerError(RegardError):
    """A tokenising process that ended before its work did."""


def encoded(
    blocks: Iterable[Block], source: Tokenizer, target: Tokenizer, dtype: str, *, workers: int | None = None
) -> Iterator[tuple[Block, Answer]]:
    """Every block with its ids, in order. `workers`: how many processes, all cores if None; with 1 it stays here."""
    blocks = iter(blocks)
    count = min(cores(), MOST_WORKERS) if workers is None else workers
    sides = [worker.Encoder(side.library, dtype) for side in (source, target)]
    here = blocks if count <= 1 else islice(blocks, BLOCKS_HERE if workers is None else 0)
    for block in here:
        yield block, [encoder(texts) for encoder, texts in zip(sides, block, strict=True)]
    first = next(blocks, None)
    if first is None:
        return
    with Workers(count, source, target, dtype) as pool:
        pending: deque[tuple[Block, Future[Answer]]] = deque([(first, pool.submit(first))])
        for block in blocks:
            pending.append((block, pool.submit(block)))
            if len(pending) > 2 * count:
                done, answer = pending.popleft()
                yield done, answer.result()
        while pending:
            done, answer = pending.popleft()
            yield done, answer.result()


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """So many worker programs, each spoken to by a thread of its own while it works."""

    def __init__(self, count: int, source: Tokenizer, target: Tokenizer, dtype: str) -> None:
        # -P: the folder of worker.py holds a tokenizers.py, which must not be taken for the library.
        command = [sys.executable, "-P", str(Path(worker.__file__))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TOKENIZERS_PARALLELISM": "false",  # one thread each: the processes are the parallelism
        }
        self._programs: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(count)
        greeting = source.library.to_str(), target.library.to_str(), dtype
        try:
            for _ in range(count):
                program = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=1 << 20
                )
                self._programs.append(program)
                _tell(program, greeting)
                self._idle.put(program)
        except BaseException:
            self._end()
            raise

    def submit(self, block: Block) -> Future[Answer]:
        """Hand a block to the next idle worker."""
        return self._threads.submit(self._ask, block)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _ask(self, block: Block) -> Answer:
        program = self._idle.get()
        try:
            _tell(program, block)
            assert program.stdout is not None
            answer: Answer = pickle.load(program.stdout)
            return answer
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise WorkerError(
                f"a tokenising process ended with {_status(program.wait())} before its work did; "
                f"if memory ran out, use fewer workers"
            ) from None
        finally:
            self._idle.put(program)

    def _end(self) -> None:
        """Kill every worker: it holds nothing but its answers, and those are either here or no longer wanted."""
        for program in self._programs:
            if program.poll() is None:
                program.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for program in self._programs:
            for pipe in (program.stdin, program.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            program.wait()


def _tell(program: subprocess.Popen[bytes], message: Any) -> None:
    assert program.stdin is not None
    pickle.dump(message, program.stdin, protocol=5)
    program.stdin.flush()


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"
