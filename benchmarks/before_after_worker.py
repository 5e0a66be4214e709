"""One side of benchmarks/before_after.py: measures the speed of a checkout on request.

Runs with the `src` and `benchmarks` of a checkout on its path. It reads the name of a case per
line, works on it for a fraction of a second and prints the speed. The benchmarks of both checkouts
must have the names used here.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import decoding
import decoding_peers
import torch
import training

import regard
from regard.config import PRESETS

SECONDS = 0.3  # of one measurement, at least
OUTPUT = 9  # tokens of every output
VOCABULARY = 40
WORDS = 256
Case = Callable[[], float]  # returns the work done: tokens or words


def decode_case(sources: int, beam: int) -> Case:
    """Decode with a tiny model of random weights, whose outputs have a fixed length."""
    settings = getattr(decoding_peers, "TransformerSettings", None) or decoding_peers.Settings
    tiny = settings(**{**PRESETS["transformer"]["tiny"], **decoding.SAME})
    model = decoding_peers.random_model(tiny, VOCABULARY, VOCABULARY)
    system = decoding_peers.Regard(model, OUTPUT, beam)
    chance = random.Random(1)
    given = system.given(
        [[chance.randrange(3, VOCABULARY) for _ in range(OUTPUT)] for _ in range(sources)]
    )

    def run() -> float:
        system.run(given)
        return float(sources * OUTPUT)

    return run


def train_case(folder: Path) -> Case:
    """Updates of the default task; the speed is in tokens of both sides."""
    ((_, settings),) = training.rows(argparse.Namespace(width=64))
    make = getattr(training, "make_step", None) or training.contender
    step, _ = make("regard", training.Task(folder), settings, 2048, "sorted")
    return lambda: float(step())


def predict_case() -> Case:
    """Words of the dictionary through the pipeline of the included model."""
    pipeline = regard.load("spelling", device="cpu")
    words = [word for word, _ in decoding.demo.dictionary()]
    lines = random.Random(1).sample(words, WORDS)

    def run() -> float:
        assert len(list(pipeline.many(lines))) == WORDS
        return float(WORDS)

    return run


def main() -> None:
    """Answer requests until the input ends."""
    torch.set_num_threads(int(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, Case] = {
            f"decoding: {sources} × {name}, tokens/s": decode_case(sources, beam)
            for sources in (1, 64)
            for name, beam in (("greedy", 1), ("beam 4", 4))
        }
        cases["training: width 64, 2+2 layers, tokens/s"] = train_case(Path(folder))
        cases["predicting: spelling, words/s"] = predict_case()
        print("\n".join(cases), "", sep="\n", flush=True)
        for line in sys.stdin:
            run, done, start = cases[line.rstrip("\n")], 0.0, time.perf_counter()
            while (spent := time.perf_counter() - start) < SECONDS:
                done += run()
            print(done / spent, flush=True)


if __name__ == "__main__":
    main()
