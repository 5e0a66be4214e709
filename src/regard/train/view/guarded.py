"""The view that suits where it is shown, and cannot end a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.terminal import TextStream, redirect_to_null
from regard.train.view.live import Live
from regard.train.view.plain import Plain
from regard.train.view.view import Pace, Sample, View


class Guarded(View):
    """A view whose failures stay its own: after the first, such as a closed pipe, it shows nothing more."""

    def __init__(self, inside: View, file: TextStream) -> None:
        self.inside: View | None = inside
        self._file = file

    def started(self, facts: Mapping[str, Any]) -> None:
        self._try(lambda view: view.started(facts))

    def step(self, pace: Pace) -> None:
        self._try(lambda view: view.step(pace))

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        self._try(lambda view: view.evaluated(step, metrics, samples))

    def said(self, text: str) -> None:
        self._try(lambda view: view.said(text))

    def finished(self, facts: Mapping[str, Any]) -> None:
        self._try(lambda view: view.finished(facts))

    def close(self) -> None:
        self._try(lambda view: view.close())

    def _try(self, act: Callable[[View], None]) -> None:
        if self.inside is None:
            return
        try:
            act(self.inside)
        except Exception as error:  # a run of days must not end because nobody is looking
            view, self.inside = self.inside, None
            if isinstance(error, BrokenPipeError):
                redirect_to_null(self._file)
            try:
                view.close()
            except Exception:  # it was broken before
                return


def live(file: TextStream | None = None) -> View:
    """The view that suits where it is shown: standard error, unless `file` says otherwise."""
    file = sys.stderr if file is None else file
    if file.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        stream: Any = file  # rich asks for more than it uses
        return Guarded(Live(Console(file=stream)), file)
    return Guarded(Plain(file), file)
