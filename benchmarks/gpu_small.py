"""Training a small model on a GPU: steps/s with each step recorded as a CUDA graph, without, and of a plain loop around
torch.nn.Transformer; and whether recorded steps learn what the others do.

    python benchmarks/gpu_small.py            # on a GPU, in a minute or two
    python benchmarks/gpu_small.py --tiny     # the same code on a CPU, to see that it runs

256 wide, 4+4 layers, 4 heads, hidden 1024, on the default task: 1,024 words to a step, bfloat16, dropout 0.1. A step of
so small a model is many kernels of a few microseconds each: a host that starts them one by one is what takes the time.
"""

import argparse
import sys
import tempfile
from itertools import cycle
from pathlib import Path

import torch
from gpu_training import CLIP, SAME, SMOOTHING, placed
from harness import Check, machine, matmul_rate, report
from peers import TorchTransformer, bucketed, stepper
from steps import Recorded, Speed, clocked, fed, forget, losses, speed, trainer
from training import Task, ceiling

from regard.config import PRESETS, TrainSettings, TransformerSettings

WORDS = 1_024  # pairs to a step
ASKED = 200.0  # steps a second
NOTICEABLE = 1e-3  # nats; other dropout alone moves a step's loss by more


def ours(
    task: Task, settings: TransformerSettings, optimizer: str, options: argparse.Namespace, *, capture: bool
) -> tuple[Speed, Recorded, float]:
    """Regard's training on the clock; recorded, also its part of the speed with all batches ready beforehand."""
    forget()
    run = _trainer(task, settings, optimizer, options, capture=capture)
    count = options.steps if capture else _fewer(options)
    speeds, recorded = clocked(run, windows=options.windows, count=count)
    ready = fed(run, windows=options.windows, count=count) if capture else speeds
    return speeds, recorded, speeds.steps / ready.steps


def _fewer(options: argparse.Namespace) -> int:
    """Steps to a window of what starts its kernels one by one: they take ten times as long, and vary less."""
    return max(1, options.steps // 5)


def _trainer(task: Task, settings: TransformerSettings, optimizer: str, options: argparse.Namespace, *, capture: bool):
    train = TrainSettings(
        optimizer=optimizer, label_smoothing=SMOOTHING, clip_norm=CLIP, precision=options.precision, cuda_graphs=capture
    )
    return trainer(
        task.pairs, (len(task.source), len(task.target)), settings, train, options.batch_tokens, options.device
    )


def theirs(task: Task, settings: TransformerSettings, options: argparse.Namespace) -> Speed:
    """torch.nn.Transformer in the loop that people write, on sorted batches that are on the device already."""
    forget()
    torch.manual_seed(1)
    peer = TorchTransformer(settings, len(task.source), len(task.target)).to(options.device)
    tables = [
        placed(table, options.device) for table in bucketed(task.pairs, options.batch_tokens, count=options.steps)
    ]
    half = options.precision == "bfloat16"
    step = stepper(peer, cycle(tables), label_smoothing=SMOOTHING, clip=CLIP, half=half)
    warm = len(tables)  # every shape once: its memory is not found while the clock runs
    return speed(step, warm=warm, windows=options.windows, count=_fewer(options))


def table(
    task: Task, options: argparse.Namespace, default: TransformerSettings, same: TransformerSettings
) -> list[Check]:
    """All contenders; ceilings are of arithmetic alone, at the rate of large products."""
    rate = matmul_rate(torch.bfloat16 if options.precision == "bfloat16" else torch.float32)
    print(f"{machine()}: matrix products {rate / 1e12:.3g} TF/s")
    tokens = options.batch_tokens + 2 * options.words
    print(f"\n{'':36} {'steps/s':>8} {'ceiling':>8} {'tokens/s':>12} {'GB':>5}")
    found, parts = {}, {}
    for name, settings, optimizer, capture in (
        ("regard, Muon, recorded", default, "muon", True),
        ("regard, Muon, eager", default, "muon", False),
        ("regard as the peer, AdamW, recorded", same, "adamw", True),
        ("regard as the peer, AdamW, eager", same, "adamw", False),
        ("nn.Transformer, AdamW, eager", same, "", False),
    ):
        recorded: Recorded | str = ""
        if optimizer:
            speeds, recorded, parts[name] = ours(task, settings, optimizer, options, capture=capture)
        else:
            speeds = theirs(task, settings, options)
        limit = ceiling(task, settings, rate) / tokens
        found[name] = speeds.steps, limit
        numbers = f"{speeds.steps:>8.1f} {limit:>8.0f} {speeds.tokens:>12,.0f} {speeds.gigabytes:>5.1f}"
        print(f"{name:36} {numbers}  {recorded}", flush=True)
    checks = []
    for name in ("regard, Muon, recorded", "regard as the peer, AdamW, recorded"):
        steps, limit = found[name]
        checks.append(Check(f"{name}: steps/s", steps, limit, ASKED, steps >= ASKED))
        eager = found[name.replace("recorded", "eager")][0]
        checks.append(Check(f"{name}: over eager", steps / eager, limit / eager, 1.0, steps >= eager))
        part = parts[name]
        checks.append(Check(f"{name}: of the speed with all batches ready", part, 1.0, 0.95, part >= 0.95))
    peer = found["nn.Transformer, AdamW, eager"][0]
    steps, limit = found["regard as the peer, AdamW, recorded"]
    return [*checks, Check("recorded over nn.Transformer", steps / peer, limit / peer, 1.0, steps >= peer)]


def curves(task: Task, settings: TransformerSettings, options: argparse.Namespace, optimizer: str) -> Check:
    """Recorded beside eager, loss by loss, with dropout; and eager beside itself, to know what equal runs differ by:
    nothing, for no kernel here adds in an order of chance."""
    found = []
    for capture in (True, False, False):
        forget()
        found.append(losses(_trainer(task, settings, optimizer, options, capture=capture), options.curve))
    recorded, eager, again = found
    gap, noise = (max(abs(a - b) for a, b in zip(one, eager, strict=True)) for one in (recorded, again))
    allowed = max(2 * noise, NOTICEABLE)
    print(f"\n{optimizer}: {len(eager)} losses from {eager[0]:.4f} to {eager[-1]:.4f}; recorded differs from eager by "
          f"at most {gap:.2e}, eager from itself by {noise:.2e}")  # fmt: skip
    good = gap <= allowed  # false for NaN too
    return Check(f"{optimizer}: loss, recorded beside eager, largest difference", gap, noise, allowed, good)


def arguments() -> argparse.Namespace:
    """What may be chosen."""
    parser = argparse.ArgumentParser(description="training a small model on a GPU, recorded and not")
    parser.add_argument("--tiny", action="store_true", help="a smaller model, few steps, on a CPU: does it run?")
    parser.add_argument("--steps", type=int, default=100, help="steps to a window; a fifth where they are not recorded")
    parser.add_argument("--windows", type=int, default=3, help="windows, of which the median counts")
    parser.add_argument("--curve", type=int, default=60, help="steps of which the losses are compared")
    options = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU, and torch sees none; --tiny runs it in small on a CPU")
    options.device, options.precision = torch.device("cuda"), "bfloat16"
    if options.tiny:  # most CPUs have no bfloat16
        options.device, options.precision = torch.device("cpu"), "float32"
        options.steps, options.windows, options.curve = 2, 2, 4
    return options


def main() -> None:
    """Everything."""
    options = arguments()
    size = PRESETS["transformer"]["tiny" if options.tiny else "small"]
    default = TransformerSettings(**{**size, "dropout": 0.1})
    same = TransformerSettings(**{**size, **SAME, "position": "sinusoidal", "dropout": 0.1})
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder))
        options.words = WORDS // 16 if options.tiny else WORDS
        mean = task.pairs.source_lengths.mean() + task.pairs.target_lengths.mean()
        options.batch_tokens = round(options.words * mean)  # a budget counts no begin and end
        checks = table(task, options, default, same)
        checks += [curves(task, default, options, optimizer) for optimizer in ("muon", "adamw")]
    report("gpu_small", checks)


if __name__ == "__main__":
    main()
