"""Import a model of Hugging Face: converted, verified, and only then written.

>>> regard.import_model("opus-mt-en-de", "models/en-de")
>>> regard.load("hf:opus-mt-en-de")("Hello!")            # the same, in the cache
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from regard import bundle
from regard.api import PathLike
from regard.errors import RegardError
from regard.hub.hf_import import import_checkpoint
from regard.hub.hub_download import downloaded
from regard.hub.import_template import ChosenLanguages
from regard.model_location import HUGGING_FACE
from regard.training.pairs import as_corpus


def import_model(
    folder: PathLike,
    out: PathLike,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    download: bool = False,
    held_out: Any = None,
) -> Path:
    """Import a Hugging Face folder as a bundle; returns the folder that was written.

    With `download`, `folder` may be a name on the Hugging Face Hub. The languages are those of a
    multilingual model. The imported model must give the same outputs as the original and the same
    logits within 1e-4, on the sources of `held_out` (pairs as in `regard.train`) and included
    texts. Otherwise nothing is written.
    """
    place, name = Path(out), os.fspath(folder).removeprefix(HUGGING_FACE)
    if place.exists():
        raise RegardError(f"{str(place)!r} exists; remove it, or choose another folder")
    if not download and not Path(name).exists():
        raise RegardError(
            f"no folder {name!r}; pass one, or add --download for a name on the Hugging Face Hub"
        )
    texts = [] if held_out is None else list(dict.fromkeys(p.source for p in as_corpus(held_out)))
    local = not download or Path(name).exists()
    with nullcontext(Path(name)) if local else downloaded(name) as home:
        languages = ChosenLanguages(source_language, target_language)
        title = None if local else name  # a card has no local paths
        made = import_checkpoint(home, languages=languages, texts=texts[:100], name=title)
    bundle.save(place, made)
    return place


def describe_import(folder: Path) -> str:
    """What the card of an imported model says, in lines."""
    card = bundle.read(folder).card
    facts = card["import"]
    lines = [f"{folder}: {facts['family']}, {card['parameters']:,} parameters"]
    if "largest_difference" in facts:
        ties = f" except {facts['near_ties']} near-ties" if facts["near_ties"] else ""
        lines.append(
            f"  {facts['texts']} texts: logits differ from {facts['check']} by at most "
            f"{facts['largest_difference']:.1e}, no output differs{ties}"
        )
    else:
        lines.append(f"  check: {facts['check']}")
    lines += [f"  {note}" for note in facts["notes"][1:]]
    if facts["generation"]:
        options = ", ".join(f"{name} {value}" for name, value in facts["generation"].items())
        lines.append(f"  recommended for decoding: {options}")
    return "\n".join(lines)
