"""NotebookDisplay: live progress of training in a Jupyter notebook, redrawn in place."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from regard.terminal import format_number, sanitize
from regard.training.display import LiveDisplay


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookDisplay(LiveDisplay):
    """Facts, a progress bar, the latest metrics and samples in one output cell."""

    def __init__(
        self,
        show: Callable[[str], Callable[[str], None]] | None = None,
        *,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(every, clock)
        self._show = show or _show_html
        self._update: Callable[[str], None] | None = None
        self._lines: list[str] = []

    def started(self, facts: Mapping[str, Any]) -> None:
        self._lines += [f"{name}: {format_number(value)}" for name, value in facts.items()]
        self.redraw()

    def message(self, text: str) -> None:
        self._lines.append(text)
        self.redraw()

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.started(facts)

    def close(self) -> None:
        self.redraw()

    def render(self) -> str:
        """The output cell as HTML."""
        parts = [f"<div>{_escape(line)}</div>" for line in self._lines]
        if self._status is not None:
            step, total = self._status.step, self._status.total
            about = _escape(" · ".join(self._status.describe()))
            bar = f'<progress value="{step}" max="{total}" style="width:20em"></progress>'
            parts.append(f"<div>{bar} {step:,}/{total:,} · {about}</div>")
        if self._metrics:
            parts.append(f"<div><b>{_escape(self._metrics)}</b></div>")
        rows = "".join(
            f"<tr>{''.join(f'<td>{_escape(text)}</td>' for text in sample)}</tr>"
            for sample in self._samples
        )
        if rows:
            head = "".join(f"<th>{name}</th>" for name in ("source", "prediction", "reference"))
            parts.append(f"<table><tr>{head}</tr>{rows}</table>")
        return "".join(parts)

    def redraw(self) -> None:
        if self._update is None:
            self._update = self._show(self.render())
        else:
            self._update(self.render())


def _escape(text: str) -> str:
    return html.escape(sanitize(text))


def _show_html(text: str) -> Callable[[str], None]:
    """Show HTML in the output cell; returns a function that replaces it."""
    output = import_module("IPython.display")
    handle = output.display(output.HTML(text), display_id=True)
    return lambda new: handle.update(output.HTML(new))
