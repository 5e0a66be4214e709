"""Exports of all combinations of settings: logits and outputs of the exported models.

Each model has random weights and is compared after it was written and loaded: with onnxruntime
(every combination, recurrent models too), CTranslate2 (float32, and int8, whose changed outputs
are counted) and `transformers` (where a class fits). 100 random sources each, greedy and beam 4.

    python benchmarks/interchange_export.py [--only ctranslate2|onnx|hf] [--workers 2]
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Check, report

from regard.bundle import Bundle
from regard.errors import RegardError
from regard.hub import CTranslate2Model, OnnxModel, write_onnx
from regard.hub.ctranslate2_export import cannot_export
from regard.hub.hf_export import choose_layout, write_hf
from regard.hub.hf_model import HFModel
from regard.hub.onnx_model import runner_options
from regard.hub.verification import reference_logits
from regard.inference import search_all
from regard.search import Beam, Greedy, LengthPenalty
from regard.search.hypothesis import SearchResult
from regard.teacher_forcing import target_logps

sys.path.append(str(Path(__file__).parents[1]))
from tests.hub.hub_models import random_bundle
from tests.hub.test_ctranslate2 import SETTINGS
from tests.hub.test_hf_export import CASES, EndAtLimit

SOURCES, LIMIT = 100, 12
TOLERANCE = 1e-4
RECURRENT: list[dict[str, Any]] = [
    {"kind": "recurrent", "width": 16, "cell": cell, "attention": attention, "score": score,
     "encoder_layers": layers, "decoder_layers": layers}
    for cell in ("gru", "lstm")
    for attention, score, layers in (
        ("none", "additive", 1), ("bahdanau", "additive", 2), ("bahdanau", "scaled-dot", 1),
        ("luong", "general", 1), ("luong", "dot", 2), ("luong", "cosine", 1),
    )
]  # fmt: skip
OTHERS: list[dict[str, Any]] = [  # beyond what CTranslate2 has
    {"score": "additive"},
    {"score": "cosine", "kv_heads": 1},
    {"score": "gaussian", "normaliser": "triangular"},
    {"score": "gaussian", "normaliser": "epanechnikov"},
    {"score": "gaussian", "normaliser": "boxcar"},
    {"score": "general"},
    {"normaliser": "none"},
    {"normaliser": {"kind": "positive", "phi": "elu"}},
    {"normaliser": "uniform"},
    {"normaliser": "sparsemax"},
    {"normaliser": {"kind": "entmax", "alpha": 1.3}},
    {"position": "learned", "window": 3},
    {"activation": "silu", "biases": False, "dim": 6, "embedding_scale": 2.0},
    {"activation": "geglu", "embedding_norm": True, "output_bias": True, "norm_eps": 1e-3},
    {"activation": "gelu-tanh", "norm": "rms", "norm_order": "post", "tie_embeddings": "all"},
    {"tie_embeddings": "inputs", "position": "t5"},
]
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
TWO_LAYERS = {"encoder_layers": 2, "decoder_layers": 2}


def random_ids(size: int, lengths: Any, seed: int) -> list[list[int]]:
    """Random ids without special tokens."""
    draw = np.random.default_rng(seed)
    return [draw.integers(min(3, size - 1), size, n).tolist() for n in lengths]


def references(bundle: Bundle, sources: list[list[int]], beam: int) -> list[SearchResult]:
    """The outputs of Regard."""
    search = Greedy() if beam == 1 else Beam(beam, 1, LengthPenalty(1.0))
    return search_all(
        search,
        bundle.model,
        sources,
        max_length=LIMIT,
        ratio=100.0,
        template=bundle.template,
    )


def changed(results: list[SearchResult], found: list[list[int]]) -> int:
    """How many outputs differ; those that rounding may decide do not count."""
    pairs = zip(results, found, strict=True)
    return sum(one.hypotheses[0].ids != ids and not one.is_close for one, ids in pairs)


def examples(bundle: Bundle) -> tuple[list[list[int]], list[list[int]]]:
    """Random sources and targets."""
    lengths = np.random.default_rng(1).integers(1, 13, (2, SOURCES))
    source = random_ids(len(bundle.source), lengths[0], 2)
    return source, random_ids(len(bundle.target), lengths[1], 3)


def compare(
    bundle: Bundle,
    logits: Callable[[list[int], list[int]], np.ndarray],
    search: Callable[[list[list[int]], int], list[list[int]]],
) -> tuple[float, int]:
    """The largest difference of a logit, and how many outputs differ (greedy and beam 4)."""
    sources, targets = examples(bundle)
    largest = max(
        float(np.abs(logits(source, target) - reference_logits(bundle, source, target)).max())
        for source, target in zip(sources, targets, strict=True)
    )
    count = sum(
        changed(references(bundle, sources, beam), search(sources, beam)) for beam in (1, 4)
    )
    return largest, count


def onnx(settings: dict[str, Any]) -> tuple[float, int]:
    """One combination on onnxruntime, with one layer on each side: tracing takes long."""
    bundle = random_bundle(**{**ONE_LAYER, **settings})
    with tempfile.TemporaryDirectory() as name:
        write_onnx(bundle, Path(name), runner_options(bundle, ("", "")))
        model = OnnxModel(Path(name), bundle, threads=1)

        def search(sources: list[list[int]], beam: int) -> list[list[int]]:
            alpha = float(beam > 1)
            return [model.search(ids, LIMIT, beam=beam, alpha=alpha)[0][1] for ids in sources]

        return compare(bundle, model.logits, search)


def hf(settings: dict[str, Any]) -> tuple[float, int] | None:
    """One combination in `transformers`; None where no class fits."""
    bundle = random_bundle(**settings)
    try:
        choose_layout(bundle)
    except RegardError:
        return None
    with tempfile.TemporaryDirectory() as name:
        write_hf(bundle, Path(name))
        model = HFModel(Path(name), bundle)

        def search(sources: list[list[int]], beam: int) -> list[list[int]]:
            options: dict[str, Any] = {"logits_processor": [EndAtLimit(bundle)]}
            if beam > 1:
                options["length_penalty"] = 1.0
            return model.generate(sources, limit=LIMIT, beam=beam, **options)

        return compare(bundle, model.logits, search)


def ctranslate2(settings: dict[str, Any]) -> tuple[float, int, int] | None:
    """One combination on CTranslate2 with the outputs that int8 changes; None if it cannot."""
    bundle = random_bundle(**settings)
    if cannot_export(bundle.model) is not None:
        return None
    sources, targets = examples(bundle)
    model = CTranslate2Model.from_bundle(bundle)
    ours = target_logps(bundle.model, sources, targets)
    theirs = model.score(list(zip(sources, targets, strict=True)), threads=1)
    pairs = zip(ours, theirs, strict=True)
    largest = max(float(np.abs(np.array(a) - np.array(b)).max()) for a, b in pairs)
    results, counts = references(bundle, sources, 1), []
    for one in (model, CTranslate2Model.from_bundle(bundle, int8=True)):
        found = one.search(sources, [LIMIT] * SOURCES, threads=1)
        counts.append(changed(results, [hypotheses[0].ids for hypotheses in found]))
    return largest, counts[0], counts[1]


FORMATS: dict[str, tuple[Callable[[dict[str, Any]], Any], list[dict[str, Any]]]] = {
    "ctranslate2": (ctranslate2, SETTINGS),
    "onnx": (onnx, [TWO_LAYERS, *SETTINGS, *OTHERS, *RECURRENT]),
    "hf": (hf, [*SETTINGS, *(settings for _, settings in CASES)]),
}


def run_one(name: str, settings: dict[str, Any]) -> Any:
    """The figures of one combination."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = FORMATS[name][0](settings)
    print(name, settings, found, f"{time.perf_counter() - start:.0f} s", flush=True)
    return found


def checks(name: str, pool: Executor) -> Iterator[Check]:
    """The figures of one format."""
    combinations = FORMATS[name][1]
    ran = list(pool.map(run_one, [name] * len(combinations), combinations))
    found = [one for one in ran if one is not None]
    largest, different = max(one[0] for one in found), sum(one[1] for one in found)
    yield Check(f"{name}: combinations", len(found), len(combinations), None, True)
    what = "log-probability" if name == "ctranslate2" else "logit"
    yield Check(
        f"{name}: largest difference of a {what}", largest, None, TOLERANCE, largest <= TOLERANCE
    )
    total = len(found) * SOURCES * (1 if name == "ctranslate2" else 2)
    yield Check(f"{name}: outputs that differ", different, total, 0, different == 0)
    if name == "ctranslate2":
        int8 = sum(one[2] for one in found)
        yield Check("ctranslate2: outputs that int8 changes", int8, total, None, True)


def main() -> None:
    """Run all formats, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(FORMATS))
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args()
    names = [options.only] if options.only else list(FORMATS)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context) as pool:
        report("interchange_export", [check for name in names for check in checks(name, pool)])


if __name__ == "__main__":
    main()
