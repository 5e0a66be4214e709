"""The speed of training, measured before a run of some minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

from regard.training.trainer import Trainer


def measure_step_seconds(build: Callable[[], Trainer], steps: int = 24) -> float:
    """Seconds per update, measured on a temporary trainer after some steps of warm-up."""
    trainer = build()
    trainer.tune()
    for _ in range(4):
        loss, _ = trainer.advance()
    if trainer.graph_step:  # the second batch of a shape is captured
        for _ in range(2):
            trainer.epoch, trainer.epoch_step = 0, 0
            for _ in range(steps):
                loss, _ = trainer.advance()
        trainer.epoch, trainer.epoch_step = 0, 0
    float(loss)  # waits for the GPU
    start = time.perf_counter()
    for _ in range(steps):
        loss, _ = trainer.advance()
    float(loss)
    return (time.perf_counter() - start) / steps
