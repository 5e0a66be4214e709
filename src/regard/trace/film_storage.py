"""A reduced film as one file: the frames of some probes in float16, losses and markers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from regard.bundle.film_files import FilmError
from regard.bundle.manifest import WEIGHTS, read_manifest
from regard.disk import fsync_path, use_default_mode
from regard.trace.film_probes import Probe, ProbeFilm

VERSION = 1
MAX_BYTES = 1 << 28
IDS = "out.top.ids"


class StoredFilm(NamedTuple):
    """The frames of a film on its probes, and its markers."""

    film: ProbeFilm
    markers: list[dict[str, Any]]


def weights_sha256(bundle: Path) -> str:
    """Identifies the model that a film belongs to."""
    return str(read_manifest(bundle)[WEIGHTS]["sha256"])


def save_film(path: Path, film: ProbeFilm, markers: Sequence[dict[str, Any]], sha256: str) -> int:
    """Write a reduced film atomically; returns its size in bytes."""
    facts = {
        "version": VERSION,
        "weights": sha256,
        "steps": film.steps,
        "losses": [None if loss is None else float(f"{loss:.6g}") for loss in film.losses],
        "probes": [{"source": one.source, "target": one.target} for one in film.probes],
        "kinds": film.kinds,
        "markers": list(markers),
    }
    tensors = {
        f"{number}/{name}": stack.to(torch.int32 if name == IDS else torch.float16).contiguous()
        for number, arrays in enumerate(film.frames)
        for name, stack in arrays.items()
    }
    partial = path.with_name(f".{path.name}.partial")
    try:
        save_file(tensors, partial, metadata={"film": json.dumps(facts)})
        use_default_mode(partial)
        fsync_path(partial)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FilmError(f"cannot write {str(path)!r}: {reason}; choose another --out") from None
    finally:
        partial.unlink(missing_ok=True)
    return path.stat().st_size


def load_film(path: Path, sha256: str) -> StoredFilm:
    """Read a reduced film; raises if it is damaged, or if it belongs to other weights."""
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["film"])
            frames: list[dict[str, torch.Tensor]] = [{} for _ in facts["probes"]]
            for key in file.keys():  # noqa: SIM118 (not a dict)
                number, _, name = key.partition("/")
                stack = file.get_tensor(key)
                frames[int(number)][name] = stack.long() if name == IDS else stack.float()
        if facts["version"] != VERSION:
            raise ValueError(f"its version is {facts['version']!r:.40}, not {VERSION}")
        probes = [Probe(str(one["source"]), str(one["target"])) for one in facts["probes"]]
        steps, losses, kinds = facts["steps"], facts["losses"], dict(facts["kinds"])
        lengths = {len(stack) for arrays in frames for stack in arrays.values()}
        if lengths != {len(steps)} or len(losses) != len(steps) or not all(frames):
            raise ValueError("its frames do not match its steps")
        markers, weights = list(facts["markers"]), facts["weights"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise FilmError(f"{str(path)!r} is not a film ({reason:.200}); make it again") from None
    if weights != sha256:
        raise FilmError(f"{str(path)!r} belongs to other weights; make it again with regard film")
    return StoredFilm(ProbeFilm(steps, losses, probes, frames, kinds), markers)
