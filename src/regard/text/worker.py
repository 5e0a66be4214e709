"""Encodes blocks of pairs quickly; run as a program, for a parent that feeds it through its standard input.

It stands alone (importing regard would load torch into every worker) and is a plain program, so that scripts without
a __main__ guard are safe and a worker whose parent was killed reads the end of its input and goes.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Sequence
from itertools import chain, count

import numpy as np
from tokenizers import Tokenizer as Library

MOST_REMEMBERED = 2_000_000  # characters; some 50 MB


class Encoder:
    """Texts to the bytes of their ids. It encodes word by word and remembers the words: every kind cuts its text
    before a space, so a text's ids are its words' ids one after another.
    """

    def __init__(self, library: Library, dtype: str) -> None:
        self._library = library
        self._dtype = np.dtype(dtype)
        self._known: dict[str, bytes] = {}
        self._held = 0

    def __call__(self, texts: Sequence[str]) -> tuple[bytes, bytes]:
        """The ids of all texts end to end, and how many each text has (int64)."""
        if not texts:
            return b"", b""
        words = _cut(texts)
        new = list(set(words) - self._known.keys())
        encodings = self._library.encode_batch_fast(new, add_special_tokens=False)
        for word, encoding in zip(new, encodings, strict=True):
            self._known[word] = np.array(encoding.ids, self._dtype).tobytes()
        ids = list(map(self._known.__getitem__, words))
        sizes = np.fromiter(map(len, ids), np.int64, len(ids)) // self._dtype.itemsize
        counts = np.fromiter((text.count(" ") + 1 for text in texts), np.int64, len(texts))
        lengths = np.add.reduceat(sizes, np.cumsum(counts) - counts)
        self._held += sum(map(len, new))
        if self._held > MOST_REMEMBERED:
            self._known.clear()
            self._held = 0
        return b"".join(ids), lengths.tobytes()


def _cut(texts: Sequence[str]) -> list[str]:
    """The words of all texts, each with the space before it; done in one stroke, for this is where the time goes."""
    end = next(
        mark for mark in chain("\n", map(chr, count())) if mark != " " and not any(mark in text for text in texts)
    )
    return end.join(texts).replace(" ", end + " ").split(end)


def serve() -> None:
    """Answer blocks (sources, targets) with their ids until the input ends. The first thing read is the tokenisers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not come between the answers
    try:
        source, target, dtype = pickle.load(questions)
        sides = [Encoder(Library.from_str(library), dtype) for library in (source, target)]
        while True:
            block = pickle.load(questions)
            pickle.dump([encoder(texts) for encoder, texts in zip(sides, block, strict=True)], answers, protocol=5)
            answers.flush()
    except (EOFError, BrokenPipeError):
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    serve()
