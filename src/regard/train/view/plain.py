"""Plain lines: for files, pipes and terminals that can do no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.terminal import TextStream, format_number, write_lines
from regard.train.view.view import SHOWN, Pace, Sample, View, scores


class Plain(View):
    """Lines without control characters: steps at most every `every` seconds, and every evaluation."""

    def __init__(self, file: TextStream, *, every: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._every, self._clock = file, every, clock
        self._next = float("-inf")

    def started(self, facts: Mapping[str, Any]) -> None:
        self._print(*(f"{name}: {format_number(value)}" for name, value in facts.items()))

    def step(self, pace: Pace) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every
        share = f"{100 * pace.step / max(1, pace.total):.0f} %"
        self._print(f"step {pace.step:,} of {pace.total:,} ({share}), {', '.join(pace.words())}")

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        self._print(f"step {step:,}: {scores(metrics)}")
        for source, predicted, true in samples[:SHOWN]:
            verdict = "right" if predicted == true else f"true: {true}"
            self._print(f"  {source} → {predicted} ({verdict})")

    def said(self, text: str) -> None:
        self._print(text)

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.started(facts)

    def close(self) -> None:
        self._file.flush()

    def _print(self, *lines: str) -> None:
        write_lines(self._file, *lines)
