"""`regard film`: reduce the training film of a run to a few probe texts in one small file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.bundle.film_files import REDUCED, find_film, list_snapshots
from regard.errors import RegardError
from regard.loading import load
from regard.model_location import find_model
from regard.trace.film_probes import example_texts, film_of_probes, markers
from regard.trace.film_storage import save_film, weights_sha256


def reduce_film(bundle: Path, probes: Sequence[str] = (), out: Path | None = None) -> str:
    """Write the reduced film of a bundle; returns a report."""
    folder = find_model(bundle)
    if (folder / "bundle/manifest.json").is_file():  # the folder of a run
        folder = folder / "bundle"
    found = find_film(folder.resolve())
    if found is None or not found.is_dir():
        raise RegardError(
            f"{str(bundle)!r} has no training film; train it with --set train.film=40"
        )
    snapshots = list_snapshots(found)
    pipeline = load(folder, device="cpu", long="allow")
    texts = list(probes) or example_texts(pipeline.bundle.card)
    if not texts:
        raise RegardError("this model has no examples; give some texts: --probe TEXT")

    def progress(count: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if count == len(snapshots) + 1 else ""
            text = f"\r{count} of {len(snapshots) + 1} snapshots"
            print(text, end=end, file=sys.stderr, flush=True)

    film = film_of_probes(pipeline, snapshots, texts, progress)
    events = markers(film)
    place = folder.resolve().with_name(folder.resolve().name + REDUCED) if out is None else out
    size = save_film(place, film, events, weights_sha256(folder))
    what = f"{len(snapshots)} snapshots of {len(texts)} texts"
    lines = [f"{place}: {what}, {len(events)} markers, {size / 1e6:.1f} MB"]
    return "\n".join([*lines, *(f"  {describe_marker(one, texts)}" for one in events)])


def describe_marker(marker: dict[str, Any], texts: Sequence[str]) -> str:
    """A marker as a sentence."""
    at = "at the end" if marker["step"] is None else f"step {marker['step']:,}"
    if marker["kind"] == "output":
        return f"the output for {texts[marker['probe']]!r} becomes right, {at}"
    return f"{marker['attention']} head {marker['head']} becomes {marker['pattern']}, {at}"
