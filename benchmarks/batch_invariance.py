"""The same answer whatever the batch: held-out words decoded alone, in sevens, in sixty-fours and shuffled.

    python benchmarks/batch_invariance.py                          # trains both families for a minute each first
    python benchmarks/batch_invariance.py runs/a/bundle runs/b/bundle --words 5000

Counts the outputs that differ from those decoded alone, greedy and with a beam of 4. A second column shows how many
would differ if close calls were not decided alone.
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
from regard.train import cmudict as demo
from regard.train.run import Job, run
from regard.train.view import Plain

SIZES = (1, 7, 64)
SEARCHES: dict[str, Search] = {"greedy": Greedy(), "beam 4": Beam(4)}
Way = Callable[[Search, Model, Ragged, torch.Tensor], list[SearchResult]]


def trained(family: str, minutes: float, folder: Path) -> Path:
    """A bundle of the default task, trained for a while."""
    parts = demo.unpack(folder)
    job = Job(
        Corpus(parts["train"]),
        folder / family,
        Corpus(parts["dev"]),
        family=family,
        train=TrainSettings(minutes=minutes),
    )
    with open(folder / f"{family}.log", "w") as log:
        run(job, Plain(log))
    return folder / family / "bundle"


def words(count: int) -> list[str]:
    """Words of the dev and test parts, which no model of the demo has learned from."""
    unseen = dict.fromkeys(word for word, _ in demo.dictionary() if demo.part(word) != "train")
    return random.Random(1).sample(list(unseen), count)


def decoded(held: bundle.Bundle, asked: list[str], size: int, search: Search, way: Way) -> list[list[int]]:
    """The ids of each word's answer, decoded in batches of `size` in the order given."""
    model, said = inference_model(held.model), []
    for start in range(0, len(asked), size):
        ids = [torch.tensor(held.source.encode(word), dtype=torch.long) for word in asked[start : start + size]]
        batch = with_end(Ragged.of(ids))
        said += [found.hypotheses[0].ids for found in way(search, model, batch, length_limits(batch.lengths))]
    return said


def plainly(search: Search, model: Model, source: Ragged, most: torch.Tensor) -> list[SearchResult]:
    """The search as it is, close calls and all."""
    return search(model, source, most)


def compare(name: str, held: bundle.Bundle, asked: list[str]) -> list[Check]:
    """One model: a line for each search and batch, and the checks."""
    checks = []
    for kind, search in SEARCHES.items():
        start = time.perf_counter()
        alone = decoded(held, asked, 1, search, batch_invariant)
        print(f"\n{name}, {kind}: {len(asked):,} words alone in {time.perf_counter() - start:.0f} s", flush=True)
        shuffled = random.Random(2).sample(range(len(asked)), len(asked))
        for size, order in [*((size, list(range(len(asked)))) for size in SIZES[1:]), (64, shuffled)]:
            differing = []
            for way in (batch_invariant, plainly):
                said = decoded(held, [asked[i] for i in order], size, search, way)
                differing.append(sum(alone[i] != ids for i, ids in zip(order, said, strict=True)))
            how = f"in {size}s" + (", shuffled" if order is shuffled else "")
            print(f"  {how:18} {differing[0]:>6} differ; {differing[1]} with close calls left as they fall", flush=True)
            checks.append(Check(f"{name}, {kind}, {how}: differing", differing[0], 0, 0, differing[0] == 0))
    return checks


def main() -> None:
    """Everything."""
    parser = argparse.ArgumentParser(description="outputs that differ by the company they were decoded in")
    parser.add_argument("bundles", nargs="*", type=Path, help="of the default task (default: train both families)")
    parser.add_argument("--words", type=int, default=5_000)
    parser.add_argument("--minutes", type=float, default=1.0, help="training of each when no bundle is given")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        families = ("transformer", "recurrent")
        places = options.bundles or [trained(family, options.minutes, Path(folder)) for family in families]
        checks = []
        for place in places:
            held = bundle.load(place)
            checks += compare(held.settings.kind, held, words(options.words))
    report("batch_invariance", checks)


if __name__ == "__main__":
    main()
