"""Training a small model on a GPU: steps/s with CUDA graphs, without, and of torch.nn.Transformer.

    python benchmarks/gpu_small.py            # on a GPU, one or two minutes
    python benchmarks/gpu_small.py --tiny     # a short trial on a CPU

256 wide, 4+4 layers, 4 heads, ffn_width 1024, on the default task: 1,024 words per step, bfloat16,
dropout 0.1. A step of such a small model is many kernels of a few microseconds, so launch overhead
dominates without graphs. The losses with and without graphs are compared step by step.
"""

import argparse
import sys
import tempfile
from itertools import cycle
from pathlib import Path

import torch
from gpu_training import CLIP, SAME, SMOOTHING, to_device
from harness import Check, machine, matmul_rate, report
from peers import TorchTransformer, padded_batches, training_step
from steps import (
    Captures,
    Speed,
    free_memory,
    losses,
    prepared_speed,
    speed,
    timed_training,
    trainer,
)
from training import Task, ceiling

from regard.config import PRESETS, TrainSettings, TransformerSettings

WORDS = 1_024  # pairs per step
TARGET = 200.0  # steps/s
NOTICEABLE = 1e-3  # nats; another dropout mask changes a step's loss by more


def regard_speed(
    task: Task,
    settings: TransformerSettings,
    optimizer: str,
    options: argparse.Namespace,
    *,
    capture: bool,
) -> tuple[Speed, Captures, float]:
    """Regard's speed and captures; with graphs, also its share of the speed with prepared
    batches."""
    free_memory()
    run = _trainer(task, settings, optimizer, options, capture=capture)
    count = options.steps if capture else _fewer(options)
    speeds, recorded = timed_training(run, windows=options.windows, count=count)
    ready = prepared_speed(run, windows=options.windows, count=count) if capture else speeds
    return speeds, recorded, speeds.steps / ready.steps


def _fewer(options: argparse.Namespace) -> int:
    """Steps per window without graphs: they take ten times as long and vary less."""
    return max(1, options.steps // 5)


def _trainer(
    task: Task,
    settings: TransformerSettings,
    optimizer: str,
    options: argparse.Namespace,
    *,
    capture: bool,
):
    train = TrainSettings(
        optimizer=optimizer,
        label_smoothing=SMOOTHING,
        clip_norm=CLIP,
        precision=options.precision,
        cuda_graphs=capture,
    )
    return trainer(
        task.pairs,
        (len(task.source), len(task.target)),
        settings,
        train,
        options.batch_tokens,
        options.device,
    )


def peer_speed(task: Task, settings: TransformerSettings, options: argparse.Namespace) -> Speed:
    """torch.nn.Transformer in a plain loop, on sorted batches already on the device."""
    free_memory()
    torch.manual_seed(1)
    peer = TorchTransformer(settings, len(task.source), len(task.target)).to(options.device)
    tables = [
        to_device(table, options.device)
        for table in padded_batches(task.pairs, options.batch_tokens, count=options.steps)
    ]
    half = options.precision == "bfloat16"
    step = training_step(peer, cycle(tables), label_smoothing=SMOOTHING, clip=CLIP, half=half)
    warm = len(tables)  # every shape once, so that timing includes no allocation
    return speed(step, warm=warm, windows=options.windows, count=_fewer(options))


def table(
    task: Task, options: argparse.Namespace, default: TransformerSettings, same: TransformerSettings
) -> list[Check]:
    """Measure all rows; ceilings are arithmetic alone, at the rate of large products."""
    rate = matmul_rate(torch.bfloat16 if options.precision == "bfloat16" else torch.float32)
    print(f"{machine()}: matrix products {rate / 1e12:.3g} TF/s")
    tokens = options.batch_tokens + 2 * options.words
    print(f"\n{'':36} {'steps/s':>8} {'ceiling':>8} {'tokens/s':>12} {'GB':>5}")
    found, parts = {}, {}
    for name, settings, optimizer, capture in (
        ("regard, Muon, CUDA graphs", default, "muon", True),
        ("regard, Muon, eager", default, "muon", False),
        ("regard, peer's model, AdamW, CUDA graphs", same, "adamw", True),
        ("regard, peer's model, AdamW, eager", same, "adamw", False),
        ("nn.Transformer, AdamW, eager", same, "", False),
    ):
        recorded: Captures | str = ""
        if optimizer:
            speeds, recorded, parts[name] = regard_speed(
                task, settings, optimizer, options, capture=capture
            )
        else:
            speeds = peer_speed(task, settings, options)
        limit = ceiling(task, settings, rate) / tokens
        found[name] = speeds.steps, limit
        numbers = (
            f"{speeds.steps:>8.1f} {limit:>8.0f} {speeds.tokens:>12,.0f} {speeds.gigabytes:>5.1f}"
        )
        print(f"{name:36} {numbers}  {recorded}", flush=True)
    checks = []
    for name in ("regard, Muon, CUDA graphs", "regard, peer's model, AdamW, CUDA graphs"):
        steps, limit = found[name]
        checks.append(Check(f"{name}: steps/s", steps, limit, TARGET, steps >= TARGET))
        eager = found[name.replace("CUDA graphs", "eager")][0]
        checks.append(
            Check(f"{name}: over eager", steps / eager, limit / eager, 1.0, steps >= eager)
        )
        part = parts[name]
        checks.append(
            Check(
                f"{name}: share of the speed with prepared batches", part, 1.0, 0.95, part >= 0.95
            )
        )
    peer = found["nn.Transformer, AdamW, eager"][0]
    steps, limit = found["regard, peer's model, AdamW, CUDA graphs"]
    return [
        *checks,
        Check("CUDA graphs over nn.Transformer", steps / peer, limit / peer, 1.0, steps >= peer),
    ]


def curves(
    task: Task, settings: TransformerSettings, options: argparse.Namespace, optimizer: str
) -> Check:
    """Losses with graphs and eager, with dropout; and of two eager runs, which are equal because
    every kernel is deterministic."""
    found = []
    for capture in (True, False, False):
        free_memory()
        found.append(
            losses(_trainer(task, settings, optimizer, options, capture=capture), options.curve)
        )
    graphs, eager, again = found
    gap, noise = (
        max(abs(a - b) for a, b in zip(one, eager, strict=True)) for one in (graphs, again)
    )
    allowed = max(2 * noise, NOTICEABLE)
    span = f"{len(eager)} losses from {eager[0]:.4f} to {eager[-1]:.4f}"
    gaps = f"CUDA graphs and eager differ by at most {gap:.2e}, two eager runs by {noise:.2e}"
    print(f"\n{optimizer}: {span}; {gaps}")
    good = gap <= allowed  # false for NaN too
    return Check(
        f"{optimizer}: loss with CUDA graphs and eager, largest difference",
        gap,
        noise,
        allowed,
        good,
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="training a small model on a GPU, with and without CUDA graphs"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a smaller model and few steps on a CPU, as a trial"
    )
    parser.add_argument(
        "--steps", type=int, default=100, help="steps per window; a fifth without graphs"
    )
    parser.add_argument("--windows", type=int, default=3, help="windows; the median counts")
    parser.add_argument("--curve", type=int, default=60, help="steps whose losses are compared")
    options = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        sys.exit(
            "this benchmark needs a GPU, and torch finds none; --tiny is a short trial on a CPU"
        )
    options.device, options.precision = torch.device("cuda"), "bfloat16"
    if options.tiny:  # most CPUs have no bfloat16
        options.device, options.precision = torch.device("cpu"), "float32"
        options.steps, options.windows, options.curve = 2, 2, 4
    return options


def main() -> None:
    """Measure and report."""
    options = arguments()
    size = PRESETS["transformer"]["tiny" if options.tiny else "small"]
    default = TransformerSettings(**{**size, "dropout": 0.1})
    same = TransformerSettings(**{**size, **SAME, "position": "sinusoidal", "dropout": 0.1})
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder))
        options.words = WORDS // 16 if options.tiny else WORDS
        mean = task.pairs.source_lengths.mean() + task.pairs.target_lengths.mean()
        options.batch_tokens = round(
            options.words * mean
        )  # batch_tokens excludes begin and end tokens
        checks = table(task, options, default, same)
        checks += [curves(task, default, options, optimizer) for optimizer in ("muon", "adamw")]
    report("gpu_small", checks)


if __name__ == "__main__":
    main()
