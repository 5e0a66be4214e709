"""Whether two source checkouts train the same model: the first steps of recipes and defaults.

    git worktree add ../regard-before 3f80ea2
    python benchmarks/same_training.py --data DATA --before ../regard-before --keep RESULTS

Both checkouts train on the same pairs with the same seed, on one CPU thread each, in float32 and
in small batches. `recipe` takes the settings from each checkout's own recipe, `auto` those that
`auto` chooses for the set on a GPU. The benchmark compares the number of tokens read, the loss of
every 20 steps, and the norm of each tensor of the final weights (averaged over steps if the
settings say so). If all agree, tokenizers, batches, dropout, loss, optimizer, schedule and weight
averages are the same. GPU code is not compared. docs/quality.md says where to get the data.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import Check, keep, machine, report
from quality_scores import CONVENTIONS
from quality_sets import READERS, write_pairs
from safetensors.torch import load_file

TRAININGS = {
    "scan-around-right": ("auto", "recipe"),
    "scan-length-26": ("recipe",),
    "multi30k-en-de-raw": ("recipe",),
    "tatoeba-en-de": ("recipe",),
    "inflection-2017": ("recipe",),
}
AUTO = {
    "text.source_tokenizer": "words",
    "text.target_tokenizer": "words",
    "model.width": 256,
    "model.heads": 4,
    "model.encoder_layers": 4,
    "model.decoder_layers": 4,
    "model.ffn_width": 1024,
    "model.position": "rotary",
    "model.norm_order": "pre",
    "model.activation": "swiglu",
    "model.tie_embeddings": "target",
    "model.dropout": 0.3,
    "train.learning_rate": 0.0035,
    "train.rdrop": 1.0,
}
OLD_NAMES = {  # settings in checkouts before version 0.2
    "text.source_tokenizer": "text.source",
    "text.target_tokenizer": "text.target",
    "model.encoder_layers": "model.encoder",
    "model.decoder_layers": "model.decoder",
    "model.ffn_width": "model.hidden",
    "model.norm_order": "model.placement",
    "model.tie_embeddings": "model.tied",
    "train.learning_rate": "train.rate",
    "train.rdrop": "train.consistency",
    "train.batch_tokens": "train.budget",
}
TOLERANCE = 0.1  # per cent by which a loss or a norm may differ: rounding grows with the steps
Outcome = dict[str, Any]


def start(
    checkout: Path, name: str, method: str, files: Path, options: argparse.Namespace
) -> subprocess.Popen[str]:
    """Start a training in a process of its own."""
    out = folder(checkout, method, files, options)
    settings = (checkout / "configs" / f"{CONVENTIONS[name].recipe}.toml").read_text("utf-8")
    old = "budget" in settings
    recipe = out.with_suffix(".toml")
    lines = settings.splitlines(keepends=True)
    recipe.write_text("".join(one for one in lines if not one.startswith("epochs")), "utf-8")
    chosen = {"train.batch_tokens": options.batch_tokens, "train.precision": "float32"}
    chosen |= {"train.seed": options.seed, "train.evaluations": 1}
    chosen |= AUTO if method == "auto" else {}
    command = [sys.executable, "-m", "regard", "train", str(files / "train.tsv"), "--device", "cpu"]
    command += ["--held-out", str(files / "dev.tsv"), "--steps", str(options.steps)]
    command += ["--out", str(out)]
    command += ["--config", str(recipe)] if method == "recipe" else []
    for key, value in chosen.items():
        command += ["--set", f"{OLD_NAMES.get(key, key) if old else key}={value}"]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    return subprocess.Popen(
        command,
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def folder(checkout: Path, method: str, files: Path, options: argparse.Namespace) -> Path:
    """The folder of a training."""
    return files / f"{'before' if checkout == options.before else 'after'}-{method}"


def finish(process: subprocess.Popen[str], out: Path) -> Outcome:
    """The tokens, losses and norms of a training, when it has ended."""
    output = process.communicate()[0]
    if process.returncode:
        sys.exit(f"{out.name}: the training failed\n{output}")
    log = next(path for name in ("log.jsonl", "journal.jsonl") if (path := out / name).exists())
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    weights = load_file(out / "bundle" / "weights.safetensors")
    return {
        "tokens": steps[-1]["tokens"],
        "losses": [event["loss"] for event in steps],
        "norms": sorted(tensor.double().norm().item() for tensor in weights.values()),
    }


def difference(before: list[float], after: list[float]) -> float:
    """The largest relative difference, in per cent; infinite if the lengths differ."""
    if len(before) != len(after):
        return float("inf")
    pairs = zip(before, after, strict=True)
    return max(100 * abs(a - b) / max(abs(a), 1e-6) for a, b in pairs)


def compare(name: str, method: str, options: argparse.Namespace, work: Path) -> list[Outcome]:
    """The outcomes of both checkouts, which train at the same time."""
    files = work / name
    if not files.exists():
        parts = READERS[name](options.data)
        files.mkdir(parents=True)
        write_pairs(files / "train.tsv", parts.train)
        dev = [(one.source, one.references[0]) for one in parts.dev[:50]]  # only to have some
        write_pairs(files / "dev.tsv", dev)
    sides = [options.before, options.after]
    running = [start(side, name, method, files, options) for side in sides]
    return [
        finish(process, folder(side, method, files, options))
        for process, side in zip(running, sides, strict=True)
    ]


def checks(name: str, method: str, before: Outcome, after: Outcome) -> list[Check]:
    """The differences of one training."""
    label = f"{name}, {method}"
    tokens = difference([before["tokens"]], [after["tokens"]])
    losses = difference(before["losses"], after["losses"])
    norms = difference(before["norms"], after["norms"])
    return [
        Check(f"{label}: tokens differ by, %", tokens, 0.0, 0.0, tokens == 0),
        Check(f"{label}: losses differ by, %", losses, 0.0, TOLERANCE, losses <= TOLERANCE),
        Check(f"{label}: norms of weights differ by, %", norms, 0.0, TOLERANCE, norms <= TOLERANCE),
    ]


def main() -> None:
    """Parse options, train in both checkouts, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--before", type=Path, required=True, help="the earlier source checkout")
    parser.add_argument("--after", type=Path, default=Path(), help="the later one")
    parser.add_argument("--sets", nargs="+", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="file for all results")
    options = parser.parse_args()
    results: list[Outcome] = []
    found: list[Check] = []
    with tempfile.TemporaryDirectory() as work:
        print("| set | method | tokens | last loss before | after |\n|---|---|---|---|---|")
        for name, method in [(one, how) for one in options.sets for how in TRAININGS[one]]:
            before, after = compare(name, method, options, Path(work))
            print(f"| {name} | {method} | {after['tokens']:,} | {before['losses'][-1]:.6f} | "
                  f"{after['losses'][-1]:.6f} |", flush=True)  # fmt: skip
            found += checks(name, method, before, after)
            results.append({"set": name, "method": method, "before": before, "after": after})
            if options.keep:
                keep(options.keep, "same_training", found, machine(), results=results)
    report("same_training", found)


if __name__ == "__main__":
    main()
