"""Training speed on the default task: tokens/s of Regard, torch.nn.Transformer and HF Marian.

    python benchmarks/training.py                     # two sizes, with and without dropout
    python benchmarks/training.py --width 64 --steps 100
    python benchmarks/training.py --profile           # profile of Regard
 A step is forward, backward, clipping and AdamW. Padding does not count as tokens. Regard reads
its batches from disk within the step, as `regard train`; the peers' batches are sorted and
prepared before timing starts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import torch
from harness import Check, machine, matmul_rate, report
from peers import PEERS, padded_batches, training_step

from regard.config import PRESETS, TrainSettings, TransformerSettings
from regard.models import build
from regard.text import Batches, Corpus, Tokenizer, tokenize_corpus, train_tokenizer
from regard.text.tokenized_pairs import TokenizedPairs
from regard.training import cmudict as demo
from regard.training.distributed import World
from regard.training.trainer import Trainer

TURN = 4  # steps before the next system's turn
SMOOTHING, CLIP = 0.1, 1.0
NAMES = ("regard", *PEERS)
Step = Callable[[], int]


class Task:
    """The training part of the default task as ids in a folder, shared by all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "ids").exists():
            self._make(demo.unpack(folder)["train"])
        self.source, self.target = (
            Tokenizer.load(folder / f"{side}.json") for side in ("source", "target")
        )
        self.pairs = TokenizedPairs.open(folder / "ids")

    def _make(self, train: Path) -> None:
        corpus = Corpus(train)
        sources, targets = zip(*((pair.source, pair.target) for pair in corpus), strict=True)
        sides = [
            train_tokenizer(kind, lines)
            for kind, lines in (("characters", sources), ("words", targets))
        ]
        for side, tokenizer in zip(("source", "target"), sides, strict=True):
            tokenizer.save(self.folder / f"{side}.json")
        tokenize_corpus(zip(sources, targets, strict=True), *sides, self.folder / "ids", workers=1)


def make_step(
    name: str, task: Task, settings: TransformerSettings, batch_tokens: int, order: str
) -> tuple[Step, int]:
    """A training step that returns its tokens, and the number of parameters."""
    torch.manual_seed(1)
    if name == "regard":
        model = build(settings, len(task.source), len(task.target))
        train = TrainSettings(
            optimizer="adamw", label_smoothing=SMOOTHING, clip_norm=CLIP, warmup=0
        )
        world = World(1, 0, torch.device("cpu"))
        batches = Batches(task.pairs, batch_tokens=batch_tokens, seed=1, max_tokens=512)
        trainer = Trainer(model, batches, train, 1_000_000, world, rate=1e-3)
        return (lambda: trainer.advance()[1]), _parameters(model)
    peer = PEERS[name](settings, len(task.source), len(task.target))
    tables = cycle(padded_batches(task.pairs, batch_tokens, count=200, order=order))
    return training_step(peer, tables, label_smoothing=SMOOTHING, clip=CLIP), _parameters(peer)


def _parameters(model: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def speeds(steps: dict[str, Step], count: int) -> dict[str, list[float]]:
    """Real tokens/s of each system, alternating in changing order, so that noise affects all."""
    for step in steps.values():
        for _ in range(2 * TURN):
            step()
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(max(3, count // TURN)):
        names = list(steps)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            tokens = sum(steps[name]() for _ in range(TURN))
            found[name].append(tokens / (time.perf_counter() - start))
    return found


def ceiling(task: Task, settings: TransformerSettings, rate: float) -> float:
    """Tokens/s if all matrix products ran at the machine's rate and nothing else took time.

    Multiply-adds forward; backward takes twice as many; each is two operations.
    """
    width, ffn_width = settings.width, settings.ffn_width
    sources, targets = (
        lengths.astype(float) + 1
        for lengths in (task.pairs.source_lengths, task.pairs.target_lengths)
    )
    feed = (3 if settings.activation == "swiglu" else 2) * width * ffn_width
    encoder = (
        settings.encoder_layers * (4 * width**2 + feed) + settings.decoder_layers * 2 * width**2
    )
    decoder = settings.decoder_layers * (6 * width**2 + feed) + width * len(task.target)
    maps = settings.encoder_layers * 2 * width * sources**2
    maps = maps + settings.decoder_layers * width * (
        targets * (targets + 1) + 2 * sources * targets
    )
    work = encoder * sources.sum() + decoder * targets.sum() + maps.sum()
    return rate * (sources.sum() + targets.sum()) / (3 * 2 * work)


def peak(
    name: str, task: Task, settings: TransformerSettings, options: argparse.Namespace
) -> float:
    """Memory growth of training in a separate process, in megabytes."""
    request = {"name": name, "folder": str(task.folder), "settings": settings.model_dump()}
    chosen = {
        "batch_tokens": options.batch_tokens,
        "order": options.peers,
        "steps": min(5, options.steps),
    }
    command = [sys.executable, __file__, "--grow", json.dumps({**request, **chosen})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def grow(request: dict) -> float:
    """Measure the growth inside that process, after a small model has loaded all libraries."""
    task, settings = Task(Path(request["folder"])), TransformerSettings(**request["settings"])
    small = settings.model_copy(update={"width": 8 * settings.heads, "ffn_width": 16})
    make_step(request["name"], task, small, 128, request["order"])[0]()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak (Linux)
    before = resident("VmRSS")
    step, _ = make_step(request["name"], task, settings, request["batch_tokens"], request["order"])
    for _ in range(request["steps"]):
        step()
    return (resident("VmHWM") - before) / 2**10


def resident(field: str) -> int:
    """Resident kilobytes of this process, now (VmRSS) or at its peak (VmHWM)."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0])


def compare(
    title: str, task: Task, settings: TransformerSettings, options: argparse.Namespace, rate: float
) -> list[Check]:
    """Print one line per system for one size and dropout; the checks."""
    made = {
        name: make_step(name, task, settings, options.batch_tokens, options.peers) for name in NAMES
    }
    found = speeds({name: step for name, (step, _) in made.items()}, options.steps)
    limit = ceiling(task, settings, rate)
    print(f"\n{title}, dropout {settings.dropout}, {options.batch_tokens:,} tokens per step")
    columns = f"{'tokens/s':>10} {'of ceiling':>10} {'regard is':>10} {'peak MB':>8}"
    print(f"{'':16} {'parameters':>10} {columns}")
    ratios = {}
    for name in NAMES:
        speed = statistics.median(found[name])
        ratios[name] = statistics.median(
            a / b for a, b in zip(found["regard"], found[name], strict=True)
        )
        grown = peak(name, task, settings, options)
        print(
            f"{name:16} {made[name][1]:>10,} {speed:>10,.0f} {speed / limit:>10.1%} "
            f"{ratios[name]:>8.2f} × {grown:>8.0f}",
            flush=True,
        )
    print(f"{'ceiling':16} {'':>10} {limit:>10,.0f}")
    name = f"{title}, dropout {settings.dropout}"
    better = min(PEERS, key=ratios.__getitem__)
    most = limit / statistics.median(found[better])
    return [
        Check(f"{name}: tokens/s", statistics.median(found["regard"]), limit, 0, True),
        Check(f"{name}: over {better}", ratios[better], most, 2.0, ratios[better] >= 2),
    ]


def profile(
    task: Task, wanted: list[tuple[str, TransformerSettings]], options: argparse.Namespace
) -> None:
    """Profile Regard for each size and dropout."""
    for title, settings in wanted:
        print(f"\n{title}, dropout {settings.dropout}")
        operations(task, settings, options)


def operations(task: Task, settings: TransformerSettings, options: argparse.Namespace) -> None:
    """Print one profile; the time in Python is what the sum lacks."""
    step, _ = make_step("regard", task, settings, options.batch_tokens, options.peers)
    for _ in range(5):
        step()
    start = time.perf_counter()
    for _ in range(options.steps):
        step()
    plain = (time.perf_counter() - start) / options.steps
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(options.steps):
            step()
    averages = seen.key_averages()
    inside = sum(row.self_cpu_time_total for row in averages) / options.steps / 1e3
    print(f"{plain * 1e3:.1f} ms a step; in operations, under the profiler, {inside:.1f} ms")
    print(averages.table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=60))


def rows(options: argparse.Namespace) -> list[tuple[str, TransformerSettings]]:
    """The sizes to compare."""
    same = {
        "activation": "relu",
        "position": "sinusoidal",
        "norm_order": "post",
        "tie_embeddings": "target",
    }
    if options.width:
        sizes = {
            "width": options.width,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "ffn_width": 4 * options.width,
        }
        return [(f"width {options.width}, 2+2", TransformerSettings(**sizes, **same))]
    larger = {"width": 128, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "ffn_width": 512}
    tiny = PRESETS["transformer"]["tiny"]
    return [
        ("tiny", TransformerSettings(**{**tiny, **same})),
        ("width 128, 3+3", TransformerSettings(**{**larger, **same})),
    ]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="real tokens/s in training, compared with two peers"
    )
    parser.add_argument(
        "--width", type=int, help="one size only: this width, 2+2 layers, ffn_width 4 × width"
    )
    parser.add_argument(
        "--batch-tokens", type=int, default=2048, help="source and target tokens per step"
    )
    parser.add_argument("--steps", type=int, default=40, help="measured steps per system")
    parser.add_argument(
        "--dropout", type=float, nargs="*", default=[0.1, 0.0], help="dropout rates to compare"
    )
    orders = ("sorted", "regard", "random")
    parser.add_argument(
        "--peers",
        choices=orders,
        default="sorted",
        help="the peers' batches: sorted (best case), Regard's, or random",
    )
    parser.add_argument("--threads", type=int, default=2, help="number of threads")
    parser.add_argument("--profile", action="store_true", help="profile Regard and stop")
    parser.add_argument("--grow", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure and report."""
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.grow:
        return print(grow(json.loads(options.grow)))
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder))
        wanted = [
            (t, s.model_copy(update={"dropout": d}))
            for t, s in rows(options)
            for d in options.dropout
        ]
        if options.profile:
            return profile(task, wanted, options)
        rate = matmul_rate()
        print(
            f"{machine()}, {torch.get_num_threads()} threads: matrix products {rate / 1e9:.0f} GF/s"
        )
        wasted = [
            table.wasted
            for table in padded_batches(
                task.pairs, options.batch_tokens, count=200, order=options.peers
            )
        ]
        padding = statistics.mean(wasted)
        print(f"padding of the peers' batches ({options.peers}): {padding:.1%}; of Regard's: none")
        checks = [
            check for t, settings in wanted for check in compare(t, task, settings, options, rate)
        ]
    return report("training", checks)


if __name__ == "__main__":
    main()
