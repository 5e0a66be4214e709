"""A live picture on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.terminal import format_number, sanitize
from regard.train.view.view import SHOWN, Pace, Sample, View, scores


class Live(View):
    """A picture that rich draws anew in place. It has no thread: each call draws, at most every `every` seconds."""

    def __init__(self, console: Any, *, every: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live as Screen

        self._console, self._every, self._clock = console, every, clock
        self._next = float("-inf")
        self._pace: Pace | None = None
        self._scores = ""
        self._samples: Sequence[Sample] = ()
        self._screen = Screen(console=console, auto_refresh=False, get_renderable=self.picture)

    def started(self, facts: Mapping[str, Any]) -> None:
        for name, value in facts.items():
            self.said(f"{name}: {format_number(value)}")
        self._screen.start(refresh=True)

    def step(self, pace: Pace) -> None:
        self._pace = pace
        now = self._clock()
        if now >= self._next:
            self._next = now + self._every
            self._screen.refresh()

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        self._scores = f"step {step:,}: {scores(metrics)}"
        self._samples = samples[:SHOWN]
        self._screen.refresh()

    def said(self, text: str) -> None:
        self._console.print(sanitize(text), markup=False, highlight=False)

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.close()
        for name, value in facts.items():
            self.said(f"{name}: {format_number(value)}")

    def close(self) -> None:
        self._screen.stop()

    def picture(self) -> Any:
        """The bar, the numbers, the latest metrics and samples."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = []
        if self._pace is not None:
            at, total = self._pace.step, self._pace.total
            bar = Table.grid(padding=(0, 1), expand=True)
            bar.add_column(ratio=1)
            bar.add_column(no_wrap=True)
            bar.add_row(ProgressBar(total=max(1, total), completed=at), Text(f"{at:,}/{total:,}"))
            parts += [bar, Text(" · ".join(self._pace.words()))]
        if self._scores:
            parts.append(Text(sanitize(self._scores), style="bold"))
        if self._samples:
            table = Table(box=None, padding=(0, 2, 0, 0))
            for name in ("source", "predicted", "true"):
                table.add_column(name, no_wrap=True, overflow="ellipsis", header_style="dim")
            for source, predicted, true in self._samples:
                style = "green" if predicted == true else "red"
                table.add_row(Text(sanitize(source)), Text(sanitize(predicted), style=style), Text(sanitize(true)))
            parts.append(table)
        return Group(*parts)
