"""What each mechanism is worth: the default task, learned by every attention and every position encoding.

    python benchmarks/mechanisms.py                       # two minutes each, about half an hour
    python benchmarks/mechanisms.py --steps 2000 --keep   # updates instead of time; results in benchmarks/results/
    python benchmarks/mechanisms.py --only none additive  # some of them
    python benchmarks/mechanisms.py --workers 13          # side by side, a core each

All train on the same pairs from the same seed for as long, with the product's own defaults for the tiny size, and are
measured by greedy decoding of the whole dev part. The claims: attention beats the bottleneck, more so on long words.
"""

import argparse
import json
import os
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from harness import Check, machine, report

from regard import bundle
from regard.config import TextSettings, TrainSettings
from regard.positions import POSITIONS
from regard.text import Corpus, group_references
from regard.train import cmudict as demo
from regard.train import metrics
from regard.train.evaluation import decode
from regard.train.prepare import prepare
from regard.train.run import Job, run
from regard.train.view import Plain

EDGES = (5, 8, 11)  # letters: the longest word of each bucket but the last
BOTTLENECK, ATTENTIONS = "none", ("additive", "dot", "general", "concat")
KEPT = Path(__file__).parent / "results" / "mechanisms.json"

Result = dict[str, Any]


def mechanisms() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every contender: its family and the one setting that tells it apart."""
    looks = {name: ("recurrent", {"attention": name}) for name in (BOTTLENECK, *ATTENTIONS)}
    return looks | {f"transformer, {name}": ("transformer", {"position": name}) for name in POSITIONS}


class Bench:
    """The data, made once, and the budget that all share."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        parts = demo.unpack(folder)
        self.train, self.dev = Corpus(parts["train"]), Corpus(parts["dev"])
        self.questions = group_references(self.dev)
        batch_tokens = {"steps": options.steps} if options.steps else {"minutes": options.minutes}
        self.settings = TrainSettings(**batch_tokens, seed=options.seed, evaluations=1, checkpoint_seconds=1e9)
        prepare(self.train, self.dev, TextSettings(), options.seed, folder / "data", lambda text: None)

    def learn(self, name: str, family: str, setting: dict[str, Any]) -> Result:
        """Train one and measure it."""
        out = self.folder / name.replace(", ", "-")
        out.mkdir()
        (out / "data").symlink_to(self.folder / "data")
        model = {"dropout": 0.0, **setting}  # minutes are too few to overfit
        job = Job(self.train, out, held_out=self.dev, family=family, size="tiny", model=model, train=self.settings)
        start = time.perf_counter()
        with open(os.devnull, "w") as nowhere:
            card = run(job, Plain(nowhere))
        seconds = time.perf_counter() - start
        facts = {key: card[key] for key in ("parameters", "steps", "tokens", "seconds")}
        return {"name": name, "family": family, "whole_seconds": round(seconds, 1), **facts, **self.measure(out)}

    def measure(self, out: Path) -> Result:
        """Errors on the dev part, over all and by word length."""
        held = bundle.load(out / "bundle")
        words = list(self.questions)
        longest = 2 * max(map(len, words)) + 10
        said = decode(held.model, held.source, held.target, words, reach={"most": longest}, device=torch.device("cpu"))
        right = [self.questions[word] for word in words]
        kind = held.target.kind
        buckets = metrics.by_length([len(word) for word in words], said, right, kind=kind, edges=EDGES)
        return {**metrics.symbols(said, right, kind=kind), "by_length": buckets}


def head() -> str:
    """The first lines of the table."""
    names = [f"≤{EDGES[0]}", *(f"{a + 1}–{b}" for a, b in pairwise(EDGES)), f"{EDGES[-1] + 1}+"]
    columns = "".join(f"{name + ' letters':>15}" for name in names)
    figures = f"{'parameters':>11}{'steps':>8}{'tokens/s':>10}"
    return f"{'phone / word error, %':24}{figures}{'all':>15}{columns}"


def line(result: Result) -> str:
    """One row of the table."""
    if "error" in result:
        return f"{result['name']:24}FAILED: {result['error']}"
    rates = [result, *result["by_length"]]
    errors = "".join(f"{rate['ser']:>8.1f} /{rate['wer']:>5.1f}" for rate in rates)
    speed = result["tokens"] / max(result["seconds"], 1e-9)
    return f"{result['name']:24}{result['parameters']:>11,}{result['steps']:>8,}{speed:>10,.0f}{errors}"


def attempt(folder: Path, options: argparse.Namespace, name: str) -> Result:
    """A result, or what went wrong: half an hour of others must not be lost to one failure."""
    if options.workers > 1:
        torch.set_num_threads(1)
    try:
        return Bench(folder, options).learn(name, *mechanisms()[name])
    except Exception as error:
        traceback.print_exc()
        return {"name": name, "error": f"{type(error).__name__}: {error}"}


def outcomes(folder: Path, options: argparse.Namespace) -> Iterator[Result]:
    """Each result as it comes: one after another, or in processes of one core each."""
    names = options.only or list(mechanisms())
    if options.workers == 1:
        yield from (attempt(folder, options, name) for name in names)
        return
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(attempt, folder, options, name) for name in names]
        yield from (done.result() for done in as_completed(asked))


def claims(results: dict[str, Result]) -> list[Check]:
    """The documents' claims as ratios of phone errors, and whether everything ran."""
    failed = sum("error" in result for result in results.values())
    good = {name: result for name, result in results.items() if "error" not in result}
    checks = [Check("mechanisms trained", len(good), len(results), len(results), not failed)]
    looking = [good[name]["ser"] for name in ATTENTIONS if name in good]
    if BOTTLENECK in good and looking:
        times = good[BOTTLENECK]["ser"] / max(min(looking), 1e-9)
        checks.append(Check("attention beats the bottleneck: phone error, ×", times, None, 1.0, times > 1))
    if BOTTLENECK in good and "additive" in good:
        short, *_, long = (
            none["ser"] / max(additive["ser"], 1e-9)
            for none, additive in zip(good[BOTTLENECK]["by_length"], good["additive"]["by_length"], strict=True)
        )
        checks.append(Check("more so on long words: none : additive, longest, ×", long, None, short, long > short))
    errors = {name: result["ser"] for name, result in good.items()}
    best = min(errors, key=errors.__getitem__, default=None)
    if best is not None:
        checks.append(Check(f"best phone error, % ({best})", errors[best], 0.0, 100.0, True))
    return checks


def keep(results: dict[str, Result], options: argparse.Namespace) -> None:
    """All results so far as JSON."""
    batch_tokens = {"steps": options.steps} if options.steps else {"minutes": options.minutes}
    places = {name: place for place, name in enumerate(mechanisms())}
    found = sorted(results.values(), key=lambda result: places[result["name"]])
    facts = {"machine": machine(), **batch_tokens, "seed": options.seed, "results": found}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def arguments() -> argparse.Namespace:
    """What may be chosen."""
    parser = argparse.ArgumentParser(description="error by word length of every attention and position encoding")
    parser.add_argument("--minutes", type=float, default=2.0, help="training time of each")
    parser.add_argument("--steps", type=int, help="updates of each, instead of time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=mechanisms(), metavar="NAME", help="some: none, additive, …")
    parser.add_argument("--workers", type=int, default=1, help="how many to train side by side, a core each")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name} after each result")
    return parser.parse_args()


def main() -> None:
    """Everything, each result as it comes."""
    options = arguments()
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options)
        each = f"{options.steps:,} steps" if options.steps else f"{options.minutes:g} minutes"
        print(f"{machine()}: {len(bench.questions):,} dev words, {each} each\n\n{head()}", flush=True)
        for result in outcomes(Path(folder), options):
            results[result["name"]] = result
            print(line(result), flush=True)
            if options.keep:
                keep(results, options)
    report("mechanisms", claims(results))


if __name__ == "__main__":
    main()
