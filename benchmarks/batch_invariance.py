"""Batch invariance: held-out words decoded one by one, in batches of 7 and 64, and shuffled.

    python benchmarks/batch_invariance.py  # trains both families for a minute each first
    python benchmarks/batch_invariance.py runs/a/bundle runs/b/bundle --words 5000

Counts the outputs that differ from those decoded one by one, greedy and with a beam of 4. A second
column counts those that would differ if near-ties were not searched again alone.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from harness import Check, machine, report

from regard import bundle
from regard.config import TrainSettings
from regard.inference import inference_model
from regard.models import Model
from regard.ragged import Ragged
from regard.search import Beam, Greedy, Search, SearchResult, batch_invariant, length_limits
from regard.text import Corpus, with_end
from regard.training import cmudict as demo
from regard.training.display import LineDisplay
from regard.training.run import Job, run

SIZES = (1, 7, 64)
SEARCHES: dict[str, Search] = {"greedy": Greedy(), "beam 4": Beam(4)}
Method = Callable[[Search, Model, Ragged, torch.Tensor], list[SearchResult]]


def train(family: str, minutes: float, folder: Path) -> Path:
    """A bundle of the default task, trained for some minutes."""
    parts = demo.unpack(folder)
    job = Job(
        Corpus(parts["train"]),
        folder / family,
        Corpus(parts["dev"]),
        family=family,
        train=TrainSettings(minutes=minutes),
    )
    with open(folder / f"{family}.log", "w") as log:
        run(job, LineDisplay(log))
    return folder / family / "bundle"


def unseen_words(count: int) -> list[str]:
    """Random words of the dev and test parts, unseen in training."""
    unseen = dict.fromkeys(word for word, _ in demo.dictionary() if demo.part(word) != "train")
    return random.Random(1).sample(list(unseen), count)


def decode(
    trained: bundle.Bundle, words: list[str], size: int, search: Search, method: Method
) -> list[list[int]]:
    """The output ids of each word, decoded in batches of `size` in the given order."""
    model, outputs = inference_model(trained.model), []
    for start in range(0, len(words), size):
        encoded = [trained.source.encode(word) for word in words[start : start + size]]
        ids = [torch.tensor(some, dtype=torch.long) for some in encoded]
        batch = with_end(Ragged.of(ids))
        found = method(search, model, batch, length_limits(batch.lengths))
        outputs += [result.hypotheses[0].ids for result in found]
    return outputs


def plain_search(
    search: Search, model: Model, source: Ragged, most: torch.Tensor
) -> list[SearchResult]:
    """The search without the second search of near-ties."""
    return search(model, source, most)


def compare(name: str, trained: bundle.Bundle, words: list[str]) -> list[Check]:
    """Print one line per search and batch size of a model; the checks."""
    checks = []
    for kind, search in SEARCHES.items():
        start = time.perf_counter()
        alone = decode(trained, words, 1, search, batch_invariant)
        seconds = time.perf_counter() - start
        print(f"\n{name}, {kind}: {len(words):,} words one by one in {seconds:.0f} s", flush=True)
        shuffled = random.Random(2).sample(range(len(words)), len(words))
        for size, order in [
            *((size, list(range(len(words)))) for size in SIZES[1:]),
            (64, shuffled),
        ]:
            differing = []
            for method in (batch_invariant, plain_search):
                outputs = decode(trained, [words[i] for i in order], size, search, method)
                pairs = zip(order, outputs, strict=True)
                differing.append(sum(alone[i] != ids for i, ids in pairs))
            batching = f"in {size}s" + (", shuffled" if order is shuffled else "")
            print(
                f"  {batching:18} {differing[0]:>6} differ; {differing[1]} without a second search",
                flush=True,
            )
            checks.append(
                Check(
                    f"{name}, {kind}, {batching}: differing", differing[0], 0, 0, differing[0] == 0
                )
            )
    return checks


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="outputs that depend on the batch")
    parser.add_argument(
        "bundles",
        nargs="*",
        type=Path,
        help="models of the default task (default: train both families)",
    )
    parser.add_argument("--words", type=int, default=5_000)
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="training time if no bundle is given"
    )
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        families = ("transformer", "recurrent")
        folders = options.bundles or [
            train(family, options.minutes, Path(folder)) for family in families
        ]
        checks = []
        for path in folders:
            trained = bundle.load(path)
            checks += compare(trained.settings.kind, trained, unseen_words(options.words))
    report("batch_invariance", checks)


if __name__ == "__main__":
    main()
