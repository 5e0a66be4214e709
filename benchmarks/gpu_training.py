"""Training a base model on a GPU: tokens/s of Regard and HF Marian, position encodings, losses.

    python benchmarks/gpu_training.py            # on a GPU, some minutes
    python benchmarks/gpu_training.py --tiny     # a short trial on a CPU
 512 wide, 6+6 layers, 8 heads, ffn_width 2048, two vocabularies of 32,000; synthetic sentences of
5 to 60 tokens, 28 on average, 25 k on each side per step; bfloat16, dropout 0.1, AdamW. Padding
does not count as tokens. Regard reads its batches from disk within the step; Marian's are sorted,
prepared and on the device before timing starts. The losses of fused training with CUDA graphs are
compared with those of the reference implementation.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import traceback
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from harness import Check, machine, matmul_rate, report
from peers import Marian, PaddedBatch, padded_batches, training_step
from steps import Captures, Speed, free_memory, losses, speed, timed_training, trainer
from training import ceiling

from regard.config import PRESETS, TrainSettings, TransformerSettings
from regard.positions import POSITIONS
from regard.text.tokenized_pairs import OFFSET, VERSION, TokenizedPairs
from regard.text.tokenizers import SPECIAL_TOKENS

SHORTEST, LONGEST = 5, 60  # tokens of a sentence without its end
SMOOTHING, CLIP = 0.1, 1.0
MOST = 64  # shapes of a step: each costs one eager step and one capture
SAME = {"activation": "relu", "norm_order": "post", "tie_embeddings": "target"}  # Marian's model


@dataclass(frozen=True)
class Task:
    """Synthetic pairs and the two vocabularies, of which only the sizes matter."""

    pairs: TokenizedPairs
    source: range
    target: range


def make_task(folder: Path, count: int, vocabulary: int) -> Task:
    """Pairs whose target repeats the source, cut or extended; low ids are frequent, as in text."""
    random = np.random.default_rng(1)
    sources = np.clip(np.rint(random.lognormal(math.log(24.5), 0.5, count)), SHORTEST, LONGEST)
    targets = np.clip(np.rint(sources * random.lognormal(0, 0.15, count)), SHORTEST, LONGEST)
    common = len(SPECIAL_TOKENS)
    ids = common - 1 + np.exp(random.random((count, LONGEST)) * math.log(vocabulary - common + 1))
    folder.mkdir()
    counts = {"version": VERSION, "pairs": count, "dtype": "<u2", "fingerprint": {}}
    for side, lengths in (("source", sources), ("target", targets)):
        tokens = ids[np.arange(LONGEST) < lengths[:, None]].astype("<u2")
        tokens.tofile(folder / f"{side}.ids")
        np.concatenate([[0], np.cumsum(lengths)]).astype(OFFSET).tofile(folder / f"{side}.offsets")
        counts[side] = {"tokens": len(tokens)}
    (folder / "ids.json").write_text(json.dumps(counts))
    return Task(TokenizedPairs.open(folder), range(vocabulary), range(vocabulary))


def training(precision: str, *, capture: bool = True) -> TrainSettings:
    """The training settings of Regard."""
    return TrainSettings(
        optimizer="adamw",
        label_smoothing=SMOOTHING,
        clip_norm=CLIP,
        precision=precision,
        cuda_graphs=capture,
    )


def regard_speed(
    task: Task, settings: TransformerSettings, options: argparse.Namespace, *, onwards: bool = False
) -> tuple[Speed, Captures]:
    """Regard's speed and captures; `onwards` also counts the captures of a whole epoch."""
    free_memory()
    run = trainer(
        task.pairs,
        _sizes(task),
        settings,
        training(options.precision),
        options.batch_tokens,
        options.device,
    )
    return timed_training(run, windows=options.windows, count=options.steps, onwards=onwards)


def _sizes(task: Task) -> tuple[int, int]:
    return len(task.source), len(task.target)


def peer_speed(task: Task, settings: TransformerSettings, options: argparse.Namespace) -> Speed:
    """HF Marian's speed on its best case; fewer steps per window, because each takes longer."""
    free_memory()
    torch.manual_seed(1)
    peer = Marian(settings, *_sizes(task)).to(options.device)
    few = max(2, options.steps // 4)
    tables = padded_batches(
        task.pairs, options.batch_tokens, count=few
    )  # all seen in the warm-up, as Regard's
    wasted = statistics.mean(table.wasted for table in tables)
    print(f"Marian's batches are sorted: {wasted:.1%} padding; Regard's have none")
    on_device = cycle([to_device(table, options.device) for table in tables])
    step = training_step(
        peer, on_device, label_smoothing=SMOOTHING, clip=CLIP, half=options.precision == "bfloat16"
    )
    return speed(step, warm=few, windows=options.windows, count=few)


def to_device(table: PaddedBatch, device: torch.device) -> PaddedBatch:
    """Move a batch to a device."""
    parts = {
        name: value.to(device)
        for name, value in vars(table).items()
        if isinstance(value, torch.Tensor)
    }
    return replace(table, **parts)


def row(name: str, found: Speed, limit: float, rest: str = "") -> None:
    """One line of the table."""
    print(
        f"{name:14} {found.tokens:>12,.0f} {found.steps:>8.1f} {found.tokens / limit:>10.1%} "
        f"{found.gigabytes:>6.1f}  {rest}",
        flush=True,
    )


def against(
    task: Task, settings: TransformerSettings, options: argparse.Namespace, limit: float
) -> tuple[Speed, list[Check]]:
    """Compare Regard and Marian on one model."""
    peer = peer_speed(task, settings, options)
    found, recorded = regard_speed(task, settings, options, onwards=True)
    print(f"\n{'':14} {'tokens/s':>12} {'steps/s':>8} {'of ceiling':>10} {'GB':>6}")
    row("HF Marian", peer, limit)
    row("regard", found, limit, str(recorded))
    print(f"{'ceiling':14} {limit:>12,.0f}")
    ratio = found.tokens / peer.tokens
    return found, [
        Check("tokens/s", found.tokens, limit, 1.5e6, found.tokens >= 1.5e6),
        Check("over HF Marian", ratio, limit / peer.tokens, 1.0, ratio >= 1),
        Check("graphs captured while timed", recorded.late, 0, 0, recorded.late == 0),
        Check("graphs of a whole epoch", recorded.epoch, 1, MOST, recorded.epoch <= MOST),
        Check("kernels compiled after the warm-up", recorded.unready, 0, 0, recorded.unready == 0),
    ]


def positions(
    task: Task,
    settings: TransformerSettings,
    options: argparse.Namespace,
    limit: float,
    plain: Speed,
) -> list[Check]:
    """The speed of each position encoding as a share of sinusoidal, measured before."""
    print(f"\n{'position':14} {'tokens/s':>12} {'steps/s':>8} {'of ceiling':>10} {'GB':>6}")
    checks = []
    for name in POSITIONS:
        try:
            if name == "sinusoidal":
                found, rest = plain, "as above"
            else:
                found, recorded = regard_speed(
                    task, settings.model_copy(update={"position": name}), options
                )
                rest = str(recorded)
        except Exception:  # one failure must not lose the other results
            traceback.print_exc()
            found, rest = Speed(0.0, 0.0, 0.0), "FAILED, see above"
        share = found.tokens / plain.tokens
        row(name, found, limit, f"{share:5.2f} of sinusoidal; {rest}")
        checks.append(Check(f"{name}: share of sinusoidal", share, 1.0, 0.9, share >= 0.9))
    return checks


def curves(
    task: Task, settings: TransformerSettings, options: argparse.Namespace, precision: str
) -> Check:
    """The losses of fused training with CUDA graphs, and of the reference, eager without fused
    kernels."""
    settings = settings.model_copy(update={"dropout": 0.0})
    found = []
    for backend, capture in (("auto", True), ("reference", False)):
        free_memory()
        chosen = settings.model_copy(update={"attention_backend": backend})
        train = training(precision, capture=capture)
        run = trainer(task.pairs, _sizes(task), chosen, train, options.batch_tokens, options.device)
        found.append(losses(run, options.curve))
    fused, reference = found
    gaps = [abs(a - b) / abs(b) for a, b in zip(fused, reference, strict=True)]
    print(f"\nloss, {precision}: {'step':>6} {'fused':>10} {'reference':>10}")
    for step in sorted({*range(0, len(gaps), max(1, len(gaps) // 6)), len(gaps) - 1}):
        print(
            f"{'':{len(precision) + 7}}{step + 1:>6} {fused[step]:>10.5f} {reference[step]:>10.5f}"
        )
    name = f"{precision}: loss, largest difference in {len(gaps)} steps, relative"
    good = max(gaps) <= 0.01 and all(map(math.isfinite, fused))
    return Check(name, max(gaps), 0.0, 0.01, good)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="training a base model on a GPU, compared with HF Marian"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a small model and few steps on a CPU, as a trial"
    )
    parser.add_argument("--steps", type=int, default=100, help="steps per window")
    parser.add_argument("--windows", type=int, default=3, help="windows; the median counts")
    parser.add_argument("--curve", type=int, default=60, help="steps whose losses are compared")
    parser.add_argument(
        "--precisions", nargs="*", default=["bfloat16"], help="precisions of the compared losses"
    )
    parser.add_argument(
        "--parts", nargs="*", default=["positions", "curves"], help="what to measure besides speed"
    )
    options = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        sys.exit(
            "this benchmark needs a GPU, and torch finds none; --tiny is a short trial on a CPU"
        )
    options.device, options.precision = (torch.device("cuda"), "bfloat16")
    if options.tiny:  # most CPUs have no bfloat16
        options.device, options.precision, options.precisions = (
            torch.device("cpu"),
            "float32",
            ["float32"],
        )
        options.steps, options.windows, options.curve = 2, 2, 4
    return options


def main() -> None:
    """Measure and report."""
    options = arguments()
    pairs, vocabulary, tokens = (2_000, 300, 1_500) if options.tiny else (250_000, 32_000, 50_000)
    size = PRESETS["transformer"]["tiny" if options.tiny else "base"]
    settings = TransformerSettings(**{**size, **SAME, "position": "sinusoidal", "dropout": 0.1})
    rate = matmul_rate(torch.float32 if options.tiny else torch.bfloat16)
    print(f"{machine()}: matrix products {rate / 1e12:.3g} TF/s")
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(Path(folder) / "ids", pairs, vocabulary)
        source, target = (
            x.mean() + 1 for x in (task.pairs.source_lengths, task.pairs.target_lengths)
        )
        options.batch_tokens = round(
            tokens * (source + target - 2) / (source + target)
        )  # batch_tokens excludes begin and end tokens
        pair = f"{source:.1f} and {target:.1f} tokens"
        print(f"{len(task.pairs):,} pairs of {pair}, {tokens:,} per step")
        limit = ceiling(task, settings, rate)
        plain, checks = against(task, settings, options, limit)
        if "positions" in options.parts:
            checks += positions(task, settings, options, limit, plain)
        if "curves" in options.parts:
            checks += [
                curves(task, settings, options, precision) for precision in options.precisions
            ]
    report("gpu_training", checks)


if __name__ == "__main__":
    main()
