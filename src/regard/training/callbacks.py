"""Callbacks receive the events of a run, beside the display and the log; two of them are loggers of
experiment trackers: Weights & Biases and MLflow (optional packages)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.errors import RegardError
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


class WandbLogger(Callback):
    """Logs a run to Weights & Biases; `options` are those of `wandb.init`, such as project=…"""

    def __init__(self, **options: Any) -> None:
        self._wandb, self._options = _require("wandb"), options
        self._run: Any = None

    def on_start(self, folder: Path, settings: Mapping[str, Any], total: int) -> None:
        """Open the run, under the name of its folder."""
        defaults = {"name": folder.name, "config": dict(settings), "dir": str(folder)}
        # the same id after an interruption continues the same run
        defaults |= {"id": folder.name, "resume": "allow"}
        self._run = self._wandb.init(**{**defaults, **self._options})

    def on_step(self, status: StepStatus) -> None:
        """Log loss, learning rate and speed."""
        self._run.log(_step_values(status), step=status.step)

    def on_evaluation(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Log the metrics on the held-out set."""
        self._run.log(_metric_values(evaluation), step=step)

    def on_end(self, card: Mapping[str, Any]) -> None:
        """Close the run."""
        self._run.finish()


class MlflowLogger(Callback):
    """Logs a run to MLflow; `options` are those of `mlflow.start_run`, such as experiment_id=…"""

    def __init__(self, **options: Any) -> None:
        self._mlflow, self._options = _require("mlflow"), options

    def on_start(self, folder: Path, settings: Mapping[str, Any], total: int) -> None:
        """Open the run, under the name of its folder, with all settings as parameters."""
        self._mlflow.start_run(**{"run_name": folder.name, **self._options})
        groups = {name: values for name, values in settings.items() if isinstance(values, Mapping)}
        for group, values in groups.items():
            self._mlflow.log_params({f"{group}.{name}": value for name, value in values.items()})

    def on_step(self, status: StepStatus) -> None:
        """Log loss, learning rate and speed."""
        self._mlflow.log_metrics(_step_values(status), step=status.step)

    def on_evaluation(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Log the metrics on the held-out set."""
        self._mlflow.log_metrics(_metric_values(evaluation), step=step)

    def on_end(self, card: Mapping[str, Any]) -> None:
        """Close the run."""
        self._mlflow.end_run()


def _require(name: str) -> Any:
    """An optional package, or an error with the fix."""
    try:
        return import_module(name)
    except ImportError:
        raise RegardError(
            f"{name} is not installed; pip install 'regard[{name}]', or train without it"
        ) from None


def _step_values(status: StepStatus) -> dict[str, float]:
    speed = status.tokens_per_second
    return {"loss": status.loss, "learning_rate": status.rate, "tokens_per_second": speed}


def _metric_values(evaluation: Evaluation) -> dict[str, float]:
    values = evaluation.metrics.items()
    return {name: value for name, value in values if isinstance(value, int | float)}
