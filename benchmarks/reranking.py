"""N-best lists reranked by a channel model (target → source; "reverse model"), on dev.

    python benchmarks/reranking.py --data DATA --out OUT --sets g2p-2020 --groups bul dut fre

Trains two models of each group, a third that generates targets from their end, and a channel model.
The ten best outputs y of a source x are ranked by their score plus λ log p(x|y) (in running text,
per token of x). One model with the channel model is compared with an ensemble of two. λ is chosen
on one half of dev and used on the other. Test sources are not read.
"""

import argparse
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from defaults import error_rate, finished, predict
from defaults_sets import SETS, Group, References
from defaults_tables import dev_checks, report_on_dev
from quality_runs import end_with_parent

import regard
from regard.answer import Answer
from regard.training.display import LineDisplay

Result = dict[str, Any]
WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # λ
MODELS: dict[str, dict[str, Any]] = {  # the settings of each model
    "first": {"seed": 1},
    "second": {"seed": 2},
    "from the end": {"seed": 2, "target_order": "reversed"},
    "channel": {"seed": 1},
}
ENSEMBLES = {
    "one model": ("first",),
    "two models": ("first", "second"),
    "two models, one from the end": ("first", "from the end"),
}
RIVALS = {"one model, reranked": "two models, one from the end"}  # as many models


@dataclass(frozen=True)
class Listed:
    """The ten best outputs of a source, each with its score and its channel score."""

    answers: list[Answer]
    scores: list[float]
    channel_scores: list[float]

    def best(self, weight: float) -> Answer:
        """The first output with a weight λ."""
        totals = [a + weight * b for a, b in zip(self.scores, self.channel_scores, strict=True)]
        return self.answers[totals.index(max(totals))]


def train(group: Group, name: str, out: Path, given: dict[str, Any], threads: int) -> None:
    """Train one of the models; one that is there is kept."""
    import torch

    torch.set_num_threads(threads)
    if (out / name / "bundle").exists():
        return
    files = [group.train, group.dev]
    if name == "channel":
        files = [_exchanged(path, out) for path in files]
    (out / name).mkdir(parents=True, exist_ok=True)
    with open(out / f"{name}.txt", "w", encoding="utf-8") as log:
        regard.train(
            files[0],
            out / name,
            held_out=files[1],
            display=LineDisplay(log),
            film=0,
            **{**group.settings, **MODELS[name], **given},
        )


def _exchanged(path: Path, folder: Path) -> Path:
    """The same pairs with source and target exchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
    made = folder / f"channel-{path.name}"
    made.write_text("".join(f"{b}\t{a}\n" for a, b in rows), encoding="utf-8")
    return made


def compare(group: Group, out: Path, threads: int) -> Result:
    """The dev error rates of ensembles, and of their lists reranked by the channel model."""
    import torch

    torch.set_num_threads(threads)
    on_dev = group.on_dev()
    dev = on_dev.test
    channel = regard.load(out / "channel", long="allow")
    rates, weights, missing = {}, {}, {}
    for kind, members in ENSEMBLES.items():
        joined = regard.load([out / name for name in members], long="allow")
        rates[kind] = error_rate(predict(joined, dev), on_dev)
        lists = list_outputs(joined, channel, dev, per_token=group.text)
        answers, weights[kind] = rerank(lists, on_dev)
        rates[f"{kind}, reranked"] = error_rate(answers, on_dev)
        found = [any(one.text in dev[one.source] for one in some.answers) for some in lists]
        missing[kind] = 100 * found.count(False) / len(dev)
    return {
        "set": group.part,
        "group": group.name,
        "rates": rates,
        "weights": weights,
        "not_listed": missing,
    }


def list_outputs(
    joined: regard.Pipeline, channel: regard.Pipeline, dev: References, *, per_token: bool
) -> list[Listed]:
    """The ten best outputs of all dev sources with both scores."""
    # The channel model takes no empty source.
    lists = [[one for one in some if one.text] or some for some in joined.answers(dev, n_best=10)]
    pairs = [(one.text, one.source) for some in lists for one in some]
    scored = iter(channel.scores(pairs))
    made = []
    for some in lists:
        other = [next(scored) for _ in some]
        channel_scores = [one.logp / (len(one.logps) if per_token else 1) for one in other]
        made.append(Listed(some, [one.score for one in some], channel_scores))
    return made


def rerank(lists: list[Listed], on_dev: Group) -> tuple[list[Answer], list[float]]:
    """The answers of each half of dev with the weight λ that is best on the other."""
    order = list(range(len(lists)))
    random.Random(1).shuffle(order)
    halves = [order[0::2], order[1::2]]
    chosen: dict[int, Answer] = {}
    weights = []
    for here, there in (halves, halves[::-1]):
        found = {w: error_rate([lists[i].best(w) for i in there], _part(lists, there, on_dev))
                 for w in WEIGHTS}  # fmt: skip
        weights.append(min(found, key=lambda w: (found[w], w)))
        chosen |= {i: lists[i].best(weights[-1]) for i in here}
    return [chosen[i] for i in range(len(lists))], weights


def _part(lists: list[Listed], some: list[int], group: Group) -> Group:
    """A group with the references of some sources only, in their order."""
    sources = [lists[i].answers[0].source for i in some]
    return replace(group, test={one: group.test[one] for one in sources})


def main() -> None:
    """Parse options, train, compare, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs, to resume")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["g2p-2020"])
    parser.add_argument("--groups", nargs="*", default=[], help="only these languages or slices")
    parser.add_argument("--size", default="auto", help="model size")
    parser.add_argument("--epochs", type=float, help="epochs, in place of the default")
    parser.add_argument("--parallel", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a process")
    parser.add_argument("--keep", type=Path, help="file for all results")
    options = parser.parse_args()
    given = {"size": options.size} | ({"epochs": options.epochs} if options.epochs else {})
    groups = [
        (group, options.out / group.part / group.name)
        for name in options.sets
        for group in SETS[name](options.data, options.out / "data" / name)
        if not options.groups or group.name in options.groups
    ]
    with ProcessPoolExecutor(options.parallel, get_context("spawn"), end_with_parent) as pool:
        for done in [pool.submit(train, group, name, out, given, options.threads)
                     for group, out in groups for name in MODELS]:  # fmt: skip
            done.result()
        results = list(finished([pool.submit(compare, *one, options.threads) for one in groups]))
    report_on_dev("reranking", results, dev_checks(results, RIVALS), options.keep)


if __name__ == "__main__":
    main()
