"""Checkpoints: all that a run needs to go on exactly where it was, each in one file written whole or not at all.

A state is a tree of dicts, lists and tuples whose leaves are tensors, numbers, strings and None: the state dicts of
models and optimisers as they are, and the states of random generators. It comes back bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.disk import fsync_path
from regard.errors import RegardError

KEPT = 2  # should the newest be damaged, there is one more
VERSION = 3
NAME = re.compile(r"(\d{8})\.(.+)\.safetensors")  # the number tells which is newest; a clock may not


class CheckpointError(RegardError):
    """A checkpoint that cannot be written, or read back as it was."""


class Checkpoint(NamedTuple):
    """A state and the facts beside it. `warning` is a line for people when a newer checkpoint was damaged."""

    state: dict[str, Any]
    facts: dict[str, Any]
    warning: str | None


class Flat(NamedTuple):
    """A tree taken apart: its tensors by path, and the rest as JSON that says where they belong."""

    tensors: dict[str, Tensor]
    outline: Any


def write(folder: str | os.PathLike[str], name: str, state: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write one more checkpoint and let go of all but the last two. `facts` are plain JSON values.

    Until the new one is on the disk nothing older is touched, so a full disk or a kill leaves the last good one.
    """
    home = Path(folder)
    tensors, outline = flatten(state)
    text = json.dumps({"version": VERSION, "facts": dict(facts), "outline": outline})
    metadata = {"checkpoint": text, "sha256": _digest(tensors, text)}
    partial = home / f".{name}.partial"
    try:
        home.mkdir(parents=True, exist_ok=True)
        _sweep(home)
        older = _found(home)
        number = 1 + max((int(path.name[:8]) for path in (*older, *home.glob("*.damaged"))), default=0)
        path = home / f"{number:08}.{name}.safetensors"
        save_file(tensors, partial, metadata=metadata)
        fsync_path(partial)
        partial.replace(path)
        fsync_path(home)
    except (OSError, SafetensorError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(
            f"cannot write checkpoint {name!r} in {str(folder)!r}: {what}; the last good one is untouched, "
            "so mend that and run the same command again"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    for spare in (*older[KEPT - 1 :], *home.glob("*.damaged")):
        spare.unlink(missing_ok=True)
    return path


def read(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest good checkpoint, on the CPU; None when there is none at all. A damaged one is set aside and said."""
    home = Path(folder)
    _sweep(home)
    damaged: list[tuple[Path, str]] = []
    for path in _found(home):
        try:
            state, facts = _opened(path)
        except (CheckpointError, SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            damaged.append((path, str(error).splitlines()[0] if str(error) else type(error).__name__))
            continue
        return Checkpoint(state, facts, _set_aside(damaged, path) if damaged else None)
    if damaged:
        path, why = damaged[0]
        raise CheckpointError(
            f"no checkpoint in {str(folder)!r} is whole ({path.name!r}: {why}); remove the folder to start anew"
        )
    return None


def flatten(tree: Any) -> Flat:
    """Take a tree apart. A tensor that stands in several places is kept once and comes back as one."""
    flat = Flat({}, None)
    seen: dict[tuple[Any, ...], str] = {}
    storages: set[int] = set()

    def visit(node: Any, path: str) -> Any:
        if isinstance(node, Tensor):
            return {"tensor": keep(node.detach(), path)}
        if isinstance(node, Mapping):
            return {"dict": [[key, visit(value, f"{path}.{key}")] for key, value in node.items() if plain(key, path)]}
        if type(node) in (list, tuple):
            return {type(node).__name__: [visit(value, f"{path}.{i}") for i, value in enumerate(node)]}
        plain(node, path)
        return node

    def keep(tensor: Tensor, path: str) -> str:
        storage = tensor.untyped_storage().data_ptr()
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in seen:
            return seen[place]
        path = path.removeprefix(".")
        while path in flat.tensors:  # {"a.b": …} and {"a": {"b": …}} read alike
            path += "~"
        seen[place] = path
        # safetensors takes no two tensors of one storage: what overlaps in part is kept apart
        shared = tensor.numel() > 0 and tensor.device.type == "cpu" and storage in storages
        storages.add(storage)
        tensor = tensor.cpu().contiguous()
        flat.tensors[path] = tensor.clone() if shared else tensor
        return path

    def plain(value: Any, path: str) -> bool:
        if value is not None and type(value) not in (bool, int, float, str):
            raise CheckpointError(
                f"{path.removeprefix('.')} is a {type(value).__name__}, which no checkpoint holds; "
                "make it a tensor, number, string, list, tuple or dict"
            )
        return True

    return flat._replace(outline=visit(tree, ""))


def unflatten(tensors: Mapping[str, Tensor], outline: Any) -> Any:
    """The tree that `flatten` took apart."""
    if not isinstance(outline, dict):
        return outline
    ((kind, inside),) = outline.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "dict":
        return {key: unflatten(tensors, value) for key, value in inside}
    return {"list": list, "tuple": tuple}[kind](unflatten(tensors, value) for value in inside)


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """State and facts of a file that is found to be whole."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        # copied out of the mapped file, which may be replaced while the run goes on
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (it is no dict)
    text = metadata.get("checkpoint", "")
    if _digest(tensors, text) != metadata.get("sha256"):
        raise CheckpointError("its sha256 differs")
    values = json.loads(text)
    if values["version"] != VERSION:
        raise CheckpointError(f"its version is {values['version']}, not {VERSION}")
    return unflatten(tensors, values["outline"]), values["facts"]


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """The sha256 of names, types, shapes, numbers and text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _found(home: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    return sorted((path for path in home.glob("*.safetensors") if NAME.fullmatch(path.name)), reverse=True)


def _sweep(home: Path) -> None:
    """Remove what a killed process left: its partial file, and the temporary one safetensors writes before that."""
    for pattern in (".*.partial", ".tmp*"):
        for orphan in home.glob(pattern):
            orphan.unlink(missing_ok=True)


def _set_aside(damaged: list[tuple[Path, str]], used: Path) -> str:
    """Rename damaged checkpoints, so that they do not count as one of the last two; and say so."""
    for path, _ in damaged:
        if os.access(path.parent, os.W_OK):
            path.rename(path.with_name(f"{path.name}.damaged"))
    names = ", ".join(f"{path.name!r} ({why})" for path, why in damaged)
    return f"damaged checkpoint {names} in {str(used.parent)!r}; going on from {used.name!r} before it"
