"""The training film on disk: snapshots of the weights during a run, each with its loss.

A run keeps them in `film/` beside its bundle, one float16 safetensors file per snapshot. A reduced
film, which has probe sentences instead of weights, is one file `NAME.film.safetensors` beside the
bundle NAME. The bundle itself has no part of a film, so loading it takes the same time.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.bundle.regular_files import NotRegular, open_regular
from regard.bundle.weights_header import WeightsError, parse_header
from regard.disk import fsync_path, use_default_mode
from regard.errors import RegardError

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "film"
REDUCED = ".film.safetensors"
NAME = re.compile(r"step-(\d{9})\.safetensors")
MAX_SNAPSHOTS = 1_000  # that a reader lists


class FilmError(RegardError):
    """A film that cannot be written or read."""


class Snapshot(NamedTuple):
    """The weights after a step of training: the held-out loss per token, and their file."""

    step: int
    loss: float
    path: Path


def find_film(bundle: Path) -> Path | None:
    """The film of a bundle: the folder `film` beside it, or a reduced film; None without one."""
    folder = bundle.parent / FOLDER
    if bundle.name == "bundle" and any(NAME.fullmatch(path.name) for path in _entries(folder)):
        return folder
    reduced = bundle.with_name(bundle.name + REDUCED)
    return reduced if reduced.is_file() else None


def list_snapshots(folder: Path) -> list[Snapshot]:
    """The snapshots of a film by step; a file that is not one is an error."""
    paths = sorted(path for path in _entries(folder) if NAME.fullmatch(path.name))
    return [_read_facts(path) for path in paths[:MAX_SNAPSHOTS]]


def snapshot_steps(folder: Path) -> list[int]:
    """The steps of a film, from the names of its files."""
    matches = (NAME.fullmatch(path.name) for path in _entries(folder))
    return sorted(int(match[1]) for match in matches if match)


def write_snapshot(folder: Path, step: int, loss: float, weights: Mapping[str, Tensor]) -> Path:
    """Write a snapshot in float16, atomically: a kill leaves the whole file or none."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path = folder / f"step-{step:09}.safetensors"
    partial = folder / f".{path.name}.partial"
    half = {
        name: weight.detach().to("cpu", torch.float16).contiguous()
        for name, weight in weights.items()
    }
    facts = {"step": step, "loss": loss if math.isfinite(loss) else str(loss)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(half, partial, metadata={"film": json.dumps(facts)})
        use_default_mode(partial)
        fsync_path(partial)
        partial.replace(path)
        fsync_path(folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FilmError(
            f"cannot write snapshot {path.name!r} in {str(folder)!r}: {reason}; fix this and run "
            "the same command again, or turn the film off with train.film=0"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return path


def read_weights(snapshot: Snapshot) -> dict[str, Tensor]:
    """The weights of a snapshot in float32."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {name: weight.float() for name, weight in load_file(snapshot.path).items()}
    except (OSError, SafetensorError) as error:
        raise _damaged(snapshot.path, str(error)) from None


def remove_after(folder: Path, step: int) -> None:
    """Remove the snapshots after a step, and what a killed process left half-written."""
    for path in _entries(folder):
        match = NAME.fullmatch(path.name)
        unfinished = path.name.endswith(".partial") or path.name.startswith(".tmp")
        if unfinished or (match and int(match[1]) > step):
            path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read_facts(path: Path) -> Snapshot:
    """Step and loss, from the header of a snapshot."""
    try:
        with open_regular(path) as file:
            header = parse_header(file, os.fstat(file.fileno()).st_size)
        facts: dict[str, Any] = json.loads(header.metadata["film"])
        step, loss = facts["step"], float(facts["loss"])
        if type(step) is not int or step < 0:
            raise ValueError(f"its step is {step!r:.40}")
    except (OSError, NotRegular, WeightsError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from None
    return Snapshot(step, loss, path)


def _damaged(path: Path, reason: str) -> FilmError:
    return FilmError(f"{str(path)!r} is not a snapshot of a film ({reason:.200}); remove the file")
