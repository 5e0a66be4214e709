"""Loggers: what Weights & Biases and MLflow receive, from stand-ins for their packages."""

import sys
from types import SimpleNamespace

import pytest

import regard
from regard.errors import RegardError
from regard.training.callbacks import MlflowLogger, WandbLogger
from tests.commands.small import Quiet, pairs

SETTINGS = {"width": 16, "heads": 2, "steps": 2, "batch_tokens": 192, "evaluations": 1}


def test_wandb_receives_steps_and_metrics(tmp_path, monkeypatch):
    seen = []
    run = SimpleNamespace(
        log=lambda values, step: seen.append((step, sorted(values))),
        finish=lambda: seen.append("finish"),
    )
    fake = SimpleNamespace(init=lambda **options: seen.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    logger = WandbLogger(project="words")
    regard.train(pairs(80), tmp_path / "run", **SETTINGS, callbacks=[logger], display=Quiet())
    assert (seen[0]["project"], seen[0]["name"]) == ("words", "run")
    assert seen[0]["config"]["train"]["steps"] == 2
    assert seen[1:] == [
        (1, ["learning_rate", "loss", "tokens_per_second"]),
        (2, ["learning_rate", "loss", "tokens_per_second"]),
        (2, ["character_error_rate", "sequence_accuracy", "sequence_error_rate"]),
        "finish",
    ]


def test_mlflow_receives_settings_and_metrics(tmp_path, monkeypatch):
    seen, params = [], {}
    fake = SimpleNamespace(
        start_run=lambda **options: seen.append(options),
        log_params=params.update,
        log_metrics=lambda values, step: seen.append((step, sorted(values))),
        end_run=lambda: seen.append("end"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    regard.train(
        pairs(80), tmp_path / "run", **SETTINGS, callbacks=[MlflowLogger()], display=Quiet()
    )
    assert seen[0] == {"run_name": "run"}
    assert (params["train.steps"], params["model.width"]) == (2, 16)
    assert [step for step, _ in seen[1:-1]] == [1, 2, 2]
    assert seen[-1] == "end"


@pytest.mark.parametrize(("logger", "name"), [(WandbLogger, "wandb"), (MlflowLogger, "mlflow")])
def test_a_missing_package_is_named_with_the_fix(monkeypatch, logger, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RegardError, match=rf"^{name} is not installed; pip install 'regard"):
        logger()
