"""Accuracy by length, for lessons 7 and 8 of the explorer: tiny models that reverse digits.

    python benchmarks/lesson_lengths.py          # all models, a few minutes; prints a table
    python benchmarks/lesson_lengths.py --keep   # also writes explorer/src/lessons/lengths.json

Lesson 7: Transformers with five position encodings, trained on at most 10 digits and tested on up
to 20. Lesson 8: recurrent models through one vector and with Bahdanau's attention, trained and
tested on up to 20 digits. Every test string is new. All models of a lesson get the same pairs,
steps, batches and seeds; results are means over three seeds.
"""

import argparse
import json
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import regard
from regard.errors import RegardError

KEPT = Path(__file__).parent.parent / "explorer" / "src" / "lessons" / "lengths.json"
TESTED = tuple(range(2, 21))
PER_LENGTH = 100  # new strings of each length
PAIRS = 20_000
SEEDS = (1, 2, 3)
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
COMMON = {"batch_tokens": 4_096, "evaluations": 1, "label_smoothing": 0.0}


def strings(longest: int, count: int, seed: int) -> Iterator[str]:
    """Random strings of digits; each length from 1 to `longest` is equally likely."""
    draw = random.Random(seed)
    for _ in range(count):
        yield "".join(draw.choices("0123456789", k=draw.randint(1, longest)))


def tests(known: set[str]) -> dict[int, list[str]]:
    """New strings of every tested length. Of the shortest ones few are new: those are repeated."""
    draw, found = random.Random(99), {}
    for length in TESTED:
        drawn = ["".join(draw.choices("0123456789", k=length)) for _ in range(20 * PER_LENGTH)]
        fresh = [one for one in drawn if one not in known] if length > 3 else drawn
        found[length] = fresh[:PER_LENGTH]
    return found


def accuracies(pipeline: regard.Pipeline, texts: dict[int, list[str]]) -> list[float | None]:
    """The share of exactly reversed strings of each length; None if the model refuses them."""
    found: list[float | None] = []
    for sources in texts.values():
        try:
            answers = pipeline.batch(sources, beam=1)
        except RegardError:
            found.append(None)
            continue
        right = [answer.text == one[::-1] for one, answer in zip(sources, answers, strict=True)]
        found.append(sum(right) / len(right))
    return found


def measure(lesson: dict[str, Any], settings: dict[str, Any], seed: int) -> list[float | None]:
    """Train one model with one seed and test it."""
    sources = list(strings(lesson["trained"], PAIRS, seed))
    pairs = [(one, one[::-1]) for one in sources]
    with tempfile.TemporaryDirectory() as folder:
        pipeline = regard.train(
            pairs[:-200],
            folder,
            held_out=pairs[-200:],
            family=lesson["family"],
            size="tiny",
            model=settings,
            train={**COMMON, **lesson["train"], "seed": seed},
            text={"source_tokenizer": "characters", "target_tokenizer": "characters"},
        )
        return accuracies(pipeline, tests(set(sources)))


def mean(values: tuple[float | None, ...]) -> float | None:
    """The mean over seeds; None if a model refused."""
    known = [value for value in values if value is not None]
    return round(statistics.mean(known), 4) if len(known) == len(values) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name} for the explorer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "lengths": list(TESTED),
        "per_length": PER_LENGTH,
        "seeds": len(SEEDS),
    }
    for name, lesson in LESSONS.items():
        rows = {}
        for kind, settings in lesson["models"].items():
            runs = [measure(lesson, settings, seed) for seed in SEEDS]
            rows[kind] = [mean(values) for values in zip(*runs, strict=True)]
            print(name, kind, rows[kind], flush=True)
        result[name] = {"trained": lesson["trained"], "accuracy": rows}
    if options.keep:
        KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
