"""Export a bundle to another runtime: converted, verified, and only then written.

>>> regard.export("runs/words", "ctranslate2")     # writes runs/words/bundle-ctranslate2
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard import bundle
from regard.api import PathLike
from regard.bundle import Bundle
from regard.bundle.manifest import CARD, README, write_json
from regard.errors import RegardError, choose
from regard.hub.conversion import Converter
from regard.hub.ctranslate2_conversion import convert_to_ctranslate2
from regard.hub.hf_conversion import convert_to_hf
from regard.hub.onnx_conversion import convert_to_onnx
from regard.model_location import find_model
from regard.pretrained import MODELS
from regard.reports.collect import read_outputs
from regard.training.pairs import as_corpus

CONVERTERS: Mapping[str, Converter] = {
    "ctranslate2": convert_to_ctranslate2,
    "onnx": convert_to_onnx,
    "hf": convert_to_hf,
}


def export(
    folder: PathLike,
    to: str,
    out: PathLike | None = None,
    *,
    int8: bool = False,
    held_out: Any = None,
    source: str | None = None,
    target: str | None = None,
) -> Path:
    """Export a bundle to `ctranslate2`, `onnx` or `hf`; returns the folder that was written.

    The exported model must give the same outputs as the original, and the same logits or
    log-probabilities within 1e-4, on up to 200 texts: the sources of `held_out` (pairs as in
    `regard.train`), those of the held-out set of the bundle's run, or the samples on its card and
    random ones. Otherwise nothing is written. With `int8`, the number of outputs that quantisation
    changes is recorded.
    """
    convert = choose(CONVERTERS, to, "export format")
    home = find_model(folder)
    if bundle.read(home).raw_settings.get("kind") == "ensemble":
        raise RegardError(
            f"{str(folder)!r} is an ensemble, and export takes one model; export one of its seeds, "
            "or distil it into one model with regard train --seeds N --distill"
        )
    if bundle.read(home).template.reversed:
        raise RegardError(
            f"{str(folder)!r} generates targets from their end (text.target_order = reversed), "
            "which exported models cannot; export a model with forward order"
        )
    place = Path(out) if out is not None else _default_folder(home, to)
    if place.exists():
        raise RegardError(f"{str(place)!r} exists; remove it, or choose another --out")
    made = bundle.load(home)
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed export
    try:
        partial.mkdir(parents=True)
        texts = _texts(made, home, held_out, source=source, target=target)
        found = convert(made, partial, texts, int8)
        write_json(partial / CARD, {**made.card, "export": {"format": to, **found.facts}})
        (partial / README).write_text(found.readme, encoding="utf-8")
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place


def _texts(made: Bundle, home: Path, held_out: Any, **columns: Any) -> list[str]:
    """The sources that verify an export."""
    if held_out is not None:
        return list(dict.fromkeys(pair.source for pair in as_corpus(held_out, **columns)))
    rows = read_outputs(home.parent / "held_out.jsonl") if home.name.startswith("bundle") else []
    return [row.source for row in rows] or [str(one[0]) for one in made.card.get("samples", [])]


def _default_folder(home: Path, to: str) -> Path:
    name = f"{home.name.removesuffix('.zip')}-{to}"
    return Path(name) if home.parent == MODELS else home.with_name(name)


def describe_export(folder: Path) -> str:
    """What the card of an export says, in lines."""
    facts = json.loads((folder / CARD).read_text(encoding="utf-8"))["export"]
    compared = "log-probabilities" if facts["format"] == "ctranslate2" else "logits"
    if "check" in facts:
        return f"{folder}: {facts['format']}, {facts['precision']}\n  {facts['check']}"
    lines = [
        f"{folder}: {facts['format']}, {facts['precision']}",
        f"  {facts['texts']} texts: {compared} differ by at most "
        f"{facts['largest_difference']:.1e}, no output differs"
        + (f" except {facts['near_ties']} near-ties" if facts["near_ties"] else ""),
    ]
    if "int8_changed_outputs" in facts:
        lines.append(f"  int8 changes {facts['int8_changed_outputs']} of these outputs")
    if facts.get("longest"):
        lines.append(f"  at most {facts['longest']:,} tokens on a side")
    return "\n".join(lines)
