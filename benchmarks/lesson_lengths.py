"""Accuracy by length, for lessons 7 and 8 of the explorer: tiny models that reverse digits.

    python benchmarks/lesson_lengths.py --parallel 16   # all models on 16 cores; prints a table
    python benchmarks/lesson_lengths.py --keep          # writes lengths.json; then npm run format
    python benchmarks/lesson_lengths.py --trial         # a minute: a few steps, one seed

Lesson 7: Transformers with five position encodings, trained on at most 10 digits and tested on up
to 20. Lesson 8: recurrent models through one vector and with Bahdanau's attention, trained and
tested on up to 20 digits. Test strings of more than 3 digits are new. All models of a lesson get
the same pairs, steps, batches and seeds; results are means over three seeds.
"""

import argparse
import json
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import regard

KEPT = Path(__file__).parent.parent / "explorer" / "src" / "lessons" / "lengths.json"
TESTED = tuple(range(2, 21))
PER_LENGTH = 100  # new strings of each length
PAIRS = 20_000
SEEDS = (1, 2, 3)
TRIAL_PAIRS, TRIAL_STEPS = 600, 12
TRANSFORMER = {"width": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "ffn_width": 128}
LESSONS: dict[str, dict[str, Any]] = {
    "positions": {
        "trained": 10,
        "family": "transformer",
        "models": {
            name: {**TRANSFORMER, "position": name, "dropout": 0.0}
            for name in ("sinusoidal", "learned", "distance", "rotary", "alibi")
        },
        "train": {"steps": 1_500, "learning_rate": 0.01},
    },
    "bottleneck": {
        "trained": 20,
        "family": "recurrent",
        "models": {
            name: {"width": 64, "attention": name, "dropout": 0.0} for name in ("none", "bahdanau")
        },
        "train": {"steps": 2_000, "learning_rate": 0.01},
    },
}
Measured = tuple[list[float], list[list[float]] | None]
COMMON = {"batch_tokens": 4_096, "evaluations": 1, "label_smoothing": 0.0}


def strings(longest: int, count: int, seed: int) -> Iterator[str]:
    """Random strings of digits; each length from 1 to `longest` is equally likely."""
    draw = random.Random(seed)
    for _ in range(count):
        yield "".join(draw.choices("0123456789", k=draw.randint(1, longest)))


def tests(known: set[str]) -> dict[int, list[str]]:
    """New strings of every tested length. Most of up to 3 digits are known."""
    draw, found = random.Random(99), {}
    for length in TESTED:
        drawn = ["".join(draw.choices("0123456789", k=length)) for _ in range(20 * PER_LENGTH)]
        fresh = [one for one in drawn if one not in known] if length > 3 else drawn
        found[length] = fresh[:PER_LENGTH]
    return found


def accuracies(pipeline: regard.Pipeline, texts: dict[int, list[str]]) -> list[float]:
    """The share of exactly reversed strings of each length."""
    found = []
    for sources in texts.values():
        answers = pipeline.many(sources, beam=1)
        right = [answer.text == one[::-1] for one, answer in zip(sources, answers, strict=True)]
        found.append(sum(right) / len(right))
    return found


def position_scores(model: Any) -> list[list[float]] | None:
    """The scores of all pairs of positions that come from learned positions alone, over √d.

    Of a table of positions: products of its rows. Of distances: the bias of the first head.
    """
    parameters, places = dict(model.named_parameters()), torch.arange(max(TESTED))
    if "source.position.table" in parameters:
        table = parameters["source.position.table"][: len(places)]
        scores = table @ table.T / table.shape[1] ** 0.5
    elif "encoder.0.self_attention.attention.bias.table" in parameters:
        bias = parameters["encoder.0.self_attention.attention.bias.table"][0]
        distance = places[None] - places[:, None]
        scores = (
            bias[distance + len(bias) // 2] / (TRANSFORMER["width"] / TRANSFORMER["heads"]) ** 0.5
        )
    else:
        return None
    return [[round(value, 3) for value in row] for row in scores.tolist()]


def measure(name: str, kind: str, seed: int, trial: bool) -> Measured:
    """Train one model of a lesson with one seed and test it."""
    torch.set_num_threads(1)
    lesson = LESSONS[name]
    sources = list(strings(lesson["trained"], TRIAL_PAIRS if trial else PAIRS, seed))
    pairs = [(one, one[::-1]) for one in sources]
    train = {**COMMON, **lesson["train"], **({"steps": TRIAL_STEPS} if trial else {})}
    with tempfile.TemporaryDirectory() as folder:
        pipeline = regard.train(
            pairs[:-200],
            folder,
            held_out=pairs[-200:],
            family=lesson["family"],
            size="tiny",
            device="cpu",
            model=lesson["models"][kind],
            train={**train, "seed": seed},
            text={"source_tokenizer": "characters", "target_tokenizer": "characters"},
        )
        found = accuracies(pipeline, tests(set(sources)))
        return found, position_scores(pipeline.model)


def summary(runs: dict[tuple[str, str, int], Measured], seeds: Sequence[int]) -> dict[str, Any]:
    """What the lessons show: mean accuracies by length, and the learned scores of positions."""
    result: dict[str, Any] = {"lengths": list(TESTED), "per_length": PER_LENGTH}
    result["seeds"] = len(seeds)
    for name, lesson in LESSONS.items():
        rows = {
            kind: [
                round(statistics.mean(values), 4)
                for values in zip(*(runs[name, kind, seed][0] for seed in seeds), strict=True)
            ]
            for kind in lesson["models"]
        }
        result[name] = {"trained": lesson["trained"], "accuracy": rows}
    tables = {kind: table for (_, kind, seed), (_, table) in runs.items() if seed == seeds[0]}
    result["position_scores"] = {kind: table for kind, table in tables.items() if table}
    return result


def as_text(result: dict[str, Any]) -> str:
    """The content of the file."""
    return json.dumps(result, indent=2) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parallel", type=int, default=1, help="processes, one core each")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name} for the explorer")
    parser.add_argument("--trial", action="store_true", help="a few steps and one seed; not kept")
    options = parser.parse_args()
    seeds = SEEDS[:1] if options.trial else SEEDS
    jobs = [
        (name, kind, seed) for name in LESSONS for kind in LESSONS[name]["models"] for seed in seeds
    ]
    with ProcessPoolExecutor(options.parallel, get_context("spawn")) as pool:
        found = pool.map(measure, *zip(*jobs, strict=True), [options.trial] * len(jobs))
        runs = dict(zip(jobs, found, strict=True))
    result = summary(runs, seeds)
    for name in LESSONS:
        for kind, row in result[name]["accuracy"].items():
            print(f"{name:10} {kind:10}", *(f"{value:.2f}" for value in row))
    if options.keep and not options.trial:
        KEPT.write_text(as_text(result), encoding="utf-8")


if __name__ == "__main__":
    main()
