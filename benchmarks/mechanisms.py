"""Attention mechanisms compared on the default task: every attention, position, score, normaliser.

    python benchmarks/mechanisms.py                          # all axes, two minutes per training
    python benchmarks/mechanisms.py --steps 2000 --keep FILE # equal steps; keeps and resumes FILE
    python benchmarks/mechanisms.py --axes parts             # score × normaliser only
    python benchmarks/mechanisms.py --only none additive     # some rows
    python benchmarks/mechanisms.py --workers 13             # in parallel processes, one core each

All rows train on the same pairs for the same time or number of steps, with the defaults of the
tiny size, and are evaluated by greedy decoding of the whole dev part. Rows of an axis that differ
from another row by less than 1 % phone error rate are trained with three seeds; the table then has
mean ± standard deviation. The checks: attention beats the model without attention, more so on long
words.
"""

import argparse
import json
import os
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from harness import machine, report
from mechanisms_tables import (
    AXES,
    CLOSE,
    EDGES,
    SEEDS,
    Result,
    by_row,
    checks,
    close_rows,
    length_table,
    parts_table,
    rows,
)

from regard import bundle
from regard.config import TextSettings, TrainSettings
from regard.text import Corpus, group_references
from regard.training import cmudict, metrics
from regard.training.dataset import tokenize
from regard.training.display import LineDisplay
from regard.training.evaluation import decode
from regard.training.raw_data import read
from regard.training.run import Job, run
from regard.training.tokenizer_pair import choose


class Bench:
    """The data, prepared once, and the training length that all rows share."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        parts = cmudict.unpack(folder)
        self.train, self.dev = Corpus(parts["train"]), Corpus(parts["dev"])
        self.references = group_references(self.dev)
        shared = folder / "data"
        data = read(self.train, self.dev, TextSettings(), folder=shared)
        tokenize(choose(data), lambda text: None)

    def train_row(self, name: str, seed: int) -> Result:
        """Train one row with one seed and evaluate it."""
        row = rows()[name]
        out = self.folder / f"{name.replace(', ', '-').replace(' × ', '-')}-{seed}"
        out.mkdir()
        (out / "data").symlink_to(self.folder / "data")
        length = training_length(self.options)
        train = TrainSettings(**length, seed=seed, evaluations=1, checkpoint_seconds=1e9)
        model = {"dropout": 0.0, **row.settings}  # a few minutes are too short to overfit
        job = Job(
            self.train,
            out,
            held_out=self.dev,
            family=row.family,
            size="tiny",
            model=model,
            train=train,
        )
        start = time.perf_counter()
        with open(os.devnull, "w") as nowhere:
            card = run(job, LineDisplay(nowhere))
        seconds = round(time.perf_counter() - start, 1)
        facts = {key: card[key] for key in ("parameters", "steps", "tokens", "seconds")}
        identity = {"name": name, "axis": row.axis, "family": row.family, "seed": seed}
        return {**identity, "total_seconds": seconds, **facts, **self.evaluate(out)}

    def evaluate(self, out: Path) -> Result:
        """Error rates on the dev part, overall and by word length."""
        trained = bundle.load(out / "bundle")
        words = list(self.references)
        most = 2 * max(map(len, words)) + 10
        tokenizers = (trained.source, trained.target)
        device = torch.device("cpu")
        outputs = decode(trained.model, *tokenizers, words, max_length=most, device=device)
        right = [self.references[word] for word in words]
        lengths = [len(word) for word in words]
        buckets = metrics.by_length(lengths, outputs, right, task="phones", edges=EDGES)
        overall = error_rates(metrics.error_rates("phones", outputs, right))
        return {**overall, "by_length": [error_rates(bucket) for bucket in buckets]}


def error_rates(found: dict[str, Any]) -> Result:
    """The figures of a metric under the names of this task: its sequences are words."""
    names = {"sequence_error_rate": "word_error_rate"}
    return {names.get(key, key): value for key, value in found.items()}


def training_length(options: argparse.Namespace) -> dict[str, float]:
    """Steps or minutes of each training."""
    return {"steps": options.steps} if options.steps else {"minutes": options.minutes}


def attempt(folder: Path, options: argparse.Namespace, name: str, seed: int) -> Result:
    """A result, or the error: one failure must not lose the other results."""
    if options.workers > 1:
        torch.set_num_threads(1)
    try:
        return Bench(folder, options).train_row(name, seed)
    except Exception as error:
        traceback.print_exc()
        return {"name": name, "seed": seed, "error": f"{type(error).__name__}: {error}"}


def outcomes(
    folder: Path, options: argparse.Namespace, trainings: Sequence[tuple[str, int]]
) -> Iterator[Result]:
    """Each result as it is ready: sequentially, or from processes with one core each."""
    if options.workers == 1:
        yield from (attempt(folder, options, *training) for training in trainings)
        return
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(attempt, folder, options, *training) for training in trainings]
        yield from (future.result() for future in as_completed(futures))


def kept(options: argparse.Namespace) -> list[Result]:
    """The results of an earlier, interrupted run of the same length; none if there was no run."""
    if options.keep is None or not options.keep.exists():
        return []
    found = json.loads(options.keep.read_text())
    length = training_length(options)
    if {key: found.get(key) for key in ("steps", "minutes") if key in found} != length:
        raise SystemExit(f"{options.keep} is of another length than {length}; use another file")
    return [result for result in found["results"] if "error" not in result]


def keep(results: Sequence[Result], options: argparse.Namespace) -> None:
    """Write all results so far as JSON, in the order of the comparison."""
    order = {name: place for place, name in enumerate(rows())}
    found = sorted(results, key=lambda result: (order[result["name"]], result["seed"]))
    facts = {"machine": machine(), **training_length(options), "results": found}
    options.keep.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="error rates of attention mechanisms and parts")
    parser.add_argument("--minutes", type=float, default=2.0, help="training time of each row")
    parser.add_argument("--steps", type=int, help="updates of each row, instead of time")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument(
        "--close", type=float, default=CLOSE, help="rows closer than this, in %%, get more seeds"
    )
    parser.add_argument(
        "--axes", nargs="+", choices=AXES, default=list(AXES), help="what to compare"
    )
    parser.add_argument(
        "--only", nargs="+", choices=rows(), metavar="NAME", help="some rows, by name"
    )
    parser.add_argument("--workers", type=int, default=1, help="parallel processes, one core each")
    parser.add_argument("--keep", type=Path, help="JSON file of all results; resumed if it exists")
    return parser.parse_args()


def main() -> None:
    """Train all rows, then the close ones with more seeds; print each result as it is ready."""
    options = arguments()
    chosen = options.only or [name for name, row in rows().items() if row.axis in options.axes]
    results = kept(options)
    with tempfile.TemporaryDirectory() as folder:
        words = len(Bench(Path(folder), options).references)
        length = ", ".join(f"{value:g} {unit}" for unit, value in training_length(options).items())
        print(f"{machine()}: {len(chosen)} rows, {words:,} dev words, {length} each", flush=True)

        def train(trainings: Sequence[tuple[str, int]]) -> None:
            done = {(result["name"], result["seed"]) for result in results}
            missing = [training for training in trainings if training not in done]
            for result in outcomes(Path(folder), options, missing):
                results.append(result)
                rate = (
                    f"{result['phone_error_rate']:.2f} %"
                    if "error" not in result
                    else result["error"]
                )
                print(f"{result['name']}, seed {result['seed']}: {rate}", flush=True)
                if options.keep is not None:
                    keep(results, options)

        train([(name, options.seed) for name in chosen])
        more = range(options.seed + 1, options.seed + SEEDS)
        close = close_rows(results, options.close)
        train([(name, seed) for seed in more for name in close])
    groups = by_row(results)
    print(f"\n{length_table(groups)}\n\n{parts_table(groups)}")
    report("mechanisms", checks(results))


if __name__ == "__main__":
    main()
