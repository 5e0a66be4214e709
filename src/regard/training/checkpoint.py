"""State of a run on disk: checkpoints and JSON state files, each written atomically.

A checkpoint holds a tree of dicts, lists and tuples whose leaves are tensors, numbers, strings and
None, such as the state dicts of models and optimizers. It is restored bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.checksums import is_intact, seal, unseal
from regard.disk import fsync_path, use_default_mode, write_atomically
from regard.errors import RegardError

KEPT = 2  # checkpoints, in case the newest is damaged
VERSION = 4
NAME = re.compile(r"(\d{8})\.(.+)\.safetensors")  # numbered, because clocks can go backwards


class CheckpointError(RegardError):
    """A checkpoint that cannot be written or restored."""


class Checkpoint(NamedTuple):
    """A state and the progress saved with it. `warning` names newer, damaged checkpoints."""

    state: dict[str, Any]
    progress: dict[str, Any]
    warning: str | None


class FlatTree(NamedTuple):
    """A tree in two parts: its tensors by path, and the rest as JSON that refers to them."""

    tensors: dict[str, Tensor]
    outline: Any


def write(
    folder: str | os.PathLike[str], name: str, state: Mapping[str, Any], progress: Mapping[str, Any]
) -> Path:
    """Write a checkpoint and delete all but the last two. `progress`: plain JSON values.

    Older checkpoints are untouched until the new one is on disk, so a full disk or a kill leaves
    the last good one.
    """
    home = Path(folder)
    tensors, outline = flatten(state)
    text = json.dumps({"version": VERSION, "progress": dict(progress), "outline": outline})
    metadata = {"checkpoint": text, "sha256": _digest(tensors, text)}
    partial = home / f".{name}.partial"
    try:
        home.mkdir(parents=True, exist_ok=True)
        _remove_partial_files(home)
        older = _list_checkpoints(home)
        numbered = (*older, *home.glob("*.damaged"))
        number = 1 + max((int(path.name[:8]) for path in numbered), default=0)
        path = home / f"{number:08}.{name}.safetensors"
        save_file(tensors, partial, metadata=metadata)
        use_default_mode(partial)
        fsync_path(partial)
        partial.replace(path)
        fsync_path(home)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(
            f"cannot write checkpoint {name!r} in {str(folder)!r}: {reason}; the last good one is "
            "kept, so fix this and run the same command again"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    for old in (*older[KEPT - 1 :], *home.glob("*.damaged")):
        old.unlink(missing_ok=True)
    return path


def read(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest valid checkpoint, on the CPU; None if there is none. Renames damaged ones, and
    deletes older ones that a killed process would have deleted."""
    home = Path(folder)
    _remove_partial_files(home)
    damaged: list[tuple[Path, str]] = []
    every = _list_checkpoints(home)
    for number, path in enumerate(every):
        try:
            state, progress = _load(path)
        except (
            CheckpointError,
            SafetensorError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            damaged.append((path, reason))
            continue
        for old in every[number + KEPT :] if os.access(home, os.W_OK) else ():
            old.unlink(missing_ok=True)
        return Checkpoint(state, progress, _rename_damaged(damaged, path) if damaged else None)
    if damaged:
        path, reason = damaged[0]
        raise CheckpointError(
            f"no checkpoint in {str(folder)!r} is valid ({path.name!r}: {reason}); start over with "
            "--restart"
        )
    return None


def flatten(tree: Any) -> FlatTree:
    """Split a tree into tensors and JSON. A tensor used in several places is stored once."""
    flat = FlatTree({}, None)
    seen: dict[tuple[Any, ...], str] = {}
    storages: set[int] = set()

    def visit(node: Any, path: str) -> Any:
        if isinstance(node, Tensor):
            return {"tensor": store(node.detach(), path)}
        if isinstance(node, Mapping):
            for key in node:
                check_plain(key, path)
            return {"dict": [[key, visit(value, f"{path}.{key}")] for key, value in node.items()]}
        if type(node) in (list, tuple):
            values = [visit(value, f"{path}.{i}") for i, value in enumerate(node)]
            return {type(node).__name__: values}
        check_plain(node, path)
        return node

    def store(tensor: Tensor, path: str) -> str:
        storage = tensor.untyped_storage().data_ptr()
        layout = (tensor.dtype, tensor.shape, tensor.stride())
        place = (tensor.device, tensor.data_ptr(), *layout)
        if tensor.numel() and place in seen:
            return seen[place]
        path = path.removeprefix(".")
        while path in flat.tensors:  # {"a.b": …} and {"a": {"b": …}} have the same path
            path += "~"
        seen[place] = path
        # safetensors refuses two tensors of one storage, so overlapping ones are copied
        shared = tensor.numel() > 0 and tensor.device.type == "cpu" and storage in storages
        storages.add(storage)
        tensor = tensor.cpu().contiguous()
        flat.tensors[path] = tensor.clone() if shared else tensor
        return path

    def check_plain(value: Any, path: str) -> None:
        if value is not None and type(value) not in (bool, int, float, str):
            raise CheckpointError(
                f"{path.removeprefix('.')} is a {type(value).__name__}, which a checkpoint cannot "
                "store; use a tensor, number, string, list, tuple or dict"
            )

    return flat._replace(outline=visit(tree, ""))


def unflatten(tensors: Mapping[str, Tensor], outline: Any) -> Any:
    """The tree that `flatten` split."""
    if not isinstance(outline, dict):
        return outline
    ((kind, inside),) = outline.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "dict":
        return {key: unflatten(tensors, value) for key, value in inside}
    return {"list": list, "tuple": tuple}[kind](unflatten(tensors, value) for value in inside)


def read_state(path: Path, names: Set[str]) -> dict[str, Any] | None:
    """The values of a JSON state file, which must have these names; None without the file."""
    if not path.exists():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if names <= values.keys() and is_intact(values):
            return unseal(values)
    except (ValueError, AttributeError):
        pass
    raise RegardError(
        f"{str(path)!r} is damaged or was written by another version of Regard; start over with "
        "--restart, or use another --out"
    )


def write_state(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON state file atomically, with a checksum."""
    write_atomically(path, json.dumps(seal(values), indent=1, ensure_ascii=False))


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """State and progress of a file whose checksum is right."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        # copied out of the memory map, because the file may be replaced during the run
        names = file.keys()
        tensors = {name: file.get_tensor(name).clone() for name in names}
    text = metadata.get("checkpoint", "")
    if _digest(tensors, text) != metadata.get("sha256"):
        raise CheckpointError("its sha256 differs")
    values = json.loads(text)
    if values["version"] != VERSION:
        raise CheckpointError(f"its version is {values['version']}, not {VERSION}")
    return unflatten(tensors, values["outline"]), values["progress"]


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """The sha256 of names, dtypes, shapes, values and text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _list_checkpoints(home: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    files = (path for path in home.glob("*.safetensors") if NAME.fullmatch(path.name))
    return sorted(files, reverse=True)


def _remove_partial_files(home: Path) -> None:
    """Remove the files of a killed process: ours, and the temporary ones of safetensors."""
    for pattern in (".*.partial", ".tmp*"):
        for orphan in home.glob(pattern):
            orphan.unlink(missing_ok=True)


def _rename_damaged(damaged: list[tuple[Path, str]], used: Path) -> str:
    """Rename damaged checkpoints, so that they do not count as kept ones; returns a warning."""
    for path, _ in damaged:
        if os.access(path.parent, os.W_OK):
            path.rename(path.with_name(f"{path.name}.damaged"))
    names = ", ".join(f"{path.name!r} ({reason})" for path, reason in damaged)
    where = str(used.parent)
    return f"damaged checkpoint {names} in {where!r}; resuming from {used.name!r} before it"
