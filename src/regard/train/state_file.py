"""Notes: what a part of a run writes down for the next, as JSON; there whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from typing import Any

from regard.disk import write_atomically
from regard.errors import RegardError


def read(path: Path, names: Set[str]) -> dict[str, Any] | None:
    """What was written, which must have these names; None where nothing was."""
    if not path.exists():
        return None
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if names <= facts.keys():
            return facts
    except (ValueError, AttributeError):
        pass
    raise RegardError(f"{str(path)!r} was not written by this version of Regard, or is damaged; use another --out")


def write(path: Path, facts: dict[str, Any]) -> None:
    """Write them down, on the disk before they have their name."""
    write_atomically(path, json.dumps(facts, indent=1, ensure_ascii=False))
