"""Callback: user code that receives the events of a run, beside the display and the log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.training.display import StepStatus
from regard.training.evaluation import Evaluation


class Callback:
    """Receives the events of a run; override the methods you need.

    Only rank 0 calls it. An exception stops the run, which the same call resumes.
    """

    def on_start(self, folder: Path, settings: Mapping[str, Any], total: int) -> None:
        """Before the first step: the folder of the run, its settings and the number of steps."""

    def on_step(self, status: StepStatus) -> None:
        """After a step, or after several on a GPU: step number, loss, rate and speed."""

    def on_evaluation(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """After an evaluation on the held-out set; `best`: a bundle was saved."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """After a checkpoint was written to the folder."""

    def on_end(self, card: Mapping[str, Any]) -> None:
        """After the run: the card of the best bundle."""
