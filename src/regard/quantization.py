"""Quantise a bundle to int8, and measure the loss of quality on held-out pairs.

>>> regard.quantize("runs/words")     # writes runs/words/bundle-int8
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from regard import bundle
from regard.api import PathLike
from regard.errors import RegardError
from regard.loading import load
from regard.model_location import find_model
from regard.pipeline import Pipeline
from regard.pretrained import MODELS
from regard.quality import References, predict_all, task_of
from regard.reports.collect import read_outputs
from regard.text import group_references
from regard.training import metrics
from regard.training.pairs import as_corpus


def quantize(
    folder: PathLike,
    out: PathLike | None = None,
    *,
    held_out: Any = None,
    source: str | None = None,
    target: str | None = None,
) -> Pipeline:
    """Write an int8 copy of a bundle; returns its pipeline.

    Weights have an int8 value each and a float32 scale per output channel; the native engine also
    quantises activations, per row and at run time. The card reports size and quality before and
    after, on `held_out` (pairs as in `regard.train`) or the held-out set of the bundle's run. The
    default of `out` is the name of the bundle with -int8.
    """
    home = find_model(folder)
    pipeline = load(home, device="cpu", long="allow")
    if pipeline.bundle.raw_settings.get("kind") == "ensemble":
        raise RegardError(
            f"{str(folder)!r} is an ensemble, and int8 runs single models only; quantise one of "
            "its seeds, or distil it into one model with regard train --seeds N --distill"
        )
    if pipeline.bundle.template.reversed:
        raise RegardError(
            f"{str(folder)!r} generates targets from their end (text.target_order = reversed), "
            "and int8 runs in forward order only; quantise a model with that order"
        )
    if pipeline.bundle.card.get("precision") == "int8":
        raise RegardError(f"{str(folder)!r} is an int8 bundle already; give the float32 bundle")
    references = _references(home, held_out, source=source, target=target)
    place = Path(out) if out is not None else _default_folder(home)
    bundle.check_destination(place)
    card = {**pipeline.bundle.card, "precision": "int8"}
    with tempfile.TemporaryDirectory() as temporary:  # measure before anything is written to `out`
        bundle.save(Path(temporary) / "bundle", pipeline.bundle.with_card(card))
        quantised = load(Path(temporary) / "bundle", device="cpu", long="allow")
        facts = _compare(pipeline, quantised, references)
    bundle.save(place, pipeline.bundle.with_card({**card, "quantization": facts}))
    return load(place, device="cpu")


def _compare(exact: Pipeline, quantised: Pipeline, references: References) -> dict[str, Any]:
    """Bytes and metrics in float32 and in int8, and the engine of int8."""
    task, expected = task_of(exact, references), list(references.values())
    engine = quantised.engine
    facts: dict[str, Any] = {
        "engine": engine if engine == "native" else f"{engine}, with float32 activations",
        "held_out": len(references),
        "bytes": {},
    }
    outputs = []
    for name, pipeline in (("float32", exact), ("int8", quantised)):
        answers = predict_all(pipeline, references, None, lambda count: None)
        outputs.append([answer.text for answer in answers])
        values = metrics.measure(task, outputs[-1], expected)
        facts[name] = {key: value for key, value in values.items() if isinstance(value, float)}
        assert pipeline.bundle.weights is not None
        facts["bytes"][name] = pipeline.bundle.weights.stat().st_size
    facts["changed_outputs"] = sum(one != other for one, other in zip(*outputs, strict=True))
    return facts


def _references(home: Path, held_out: Any, **columns: Any) -> References:
    """The held-out pairs: given ones, or those of the run around the bundle."""
    if held_out is not None:
        return group_references(as_corpus(held_out, **columns))
    rows = read_outputs(home.parent / "held_out.jsonl") if home.name == "bundle" else []
    if not rows:
        raise RegardError(
            f"{str(home)!r} is not in the folder of a run, whose held-out pairs would measure the "
            "loss of quality; pass some with --held-out FILE"
        )
    return {row.source: row.references for row in rows}


def _default_folder(home: Path) -> Path:
    name = f"{home.name.removesuffix('.zip')}-int8"
    return Path(name) if home.parent == MODELS else home.with_name(name)
