"""Safe reading of a Hugging Face folder: JSON, safetensors and tokenizer files, and nothing else.

No code runs: pickle files are refused. Files stay inside the folder, are regular and have a limited
size; weights are read tensor by tensor after names and shapes were checked in the headers.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import RegardError, read_fix

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_JSON_BYTES = 1 << 28  # the largest known tokenizer.json has 33 MB
MAX_CONFIG_BYTES = 1 << 20
MAX_SHARDS = 1 << 10
DTYPES = ("F32", "F16", "BF16")
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot")  # pickle and others
MAX_NAME = 80  # characters of a name in a message


class HuggingFaceError(RegardError):
    """A Hugging Face folder that is damaged, unsafe or not supported."""


class CheckpointFolder:
    """The files of a Hugging Face folder by their plain names."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.name, self.home = os.fspath(folder), Path(os.path.realpath(folder))
        if not self.home.is_dir():
            what = "is a file, not a folder" if self.home.exists() else "does not exist"
            raise HuggingFaceError(f"{self.name!r} {what}; pass a folder with {CONFIG}")

    def error(self, reason: str, fix: str = "copy the model again") -> HuggingFaceError:
        """The error for this folder."""
        return HuggingFaceError(f"cannot import {self.name!r}: {reason}; {fix}")

    def find(self, name: str) -> Path | None:
        """The path of a file if it exists; raises unless it is a regular file of this folder."""
        if not name or name != os.path.basename(name) or name in (".", "..") or "\0" in name:
            raise self.error(f"{name[:MAX_NAME]!r} is not the name of a file in the folder")
        path = self.home / name
        if not os.path.lexists(path):
            return None
        real = Path(os.path.realpath(path))
        if real.parent != self.home and not self._is_cached(real):
            fix = "copy the files themselves (cp -rL)"
            raise self.error(f"{name!r} is a link to a file outside of it", fix)
        try:
            mode = real.stat().st_mode
        except OSError as error:
            fix = read_fix(error, "copy the model again")
            raise self.error(f"{name!r} cannot be read: {error.strerror}", fix) from None
        if not stat.S_ISREG(mode):
            raise self.error(f"{name!r} is not a regular file")
        return real

    def part(self, name: str) -> CheckpointFolder | None:
        """A folder in this folder if it exists; a link is none."""
        place = self.home / name
        return CheckpointFolder(place) if place.is_dir() and not place.is_symlink() else None

    def _is_cached(self, real: Path) -> bool:
        """Whether a file is where the Hub's cache keeps those of a snapshot: ../../blobs."""
        repository = self.home.parent.parent
        return self.home.parent.name == "snapshots" and real.parent == repository / "blobs"

    def read_bytes(self, name: str, limit: int = MAX_JSON_BYTES) -> bytes | None:
        """The content of a file of limited size; None if there is no such file."""
        path = self.find(name)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                content = file.read(limit + 1)
        except OSError as error:
            fix = read_fix(error, "copy the model again")
            raise self.error(f"{name!r} cannot be read: {error.strerror}", fix) from None
        if len(content) > limit:
            raise self.error(f"{name!r} has more than {limit:,} bytes")
        return content

    def read_text(self, name: str) -> str | None:
        """The content of a text file; None if there is no such file."""
        content = self.read_bytes(name)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise self.error(f"{name!r} is not UTF-8 text") from None

    def read_json(self, name: str, limit: int = MAX_JSON_BYTES) -> dict[str, Any] | None:
        """A JSON object; None if there is no such file."""
        content = self.read_bytes(name, limit)
        if content is None:
            return None
        try:
            values = json.loads(content)
        except (ValueError, RecursionError):
            raise self.error(f"{name!r} is not valid JSON") from None
        if not isinstance(values, dict):
            raise self.error(f"{name!r} is not a JSON object")
        return values

    @cached_property
    def weight_files(self) -> Mapping[str, Path]:
        """The file of each tensor; raises for missing shards and for files that can run code."""
        whole = self.find(WEIGHTS)
        if whole is not None:
            return dict.fromkeys(self._shapes(whole), whole)
        index = self.read_json(INDEX)
        if index is None:
            raise self._no_weights()
        names = index.get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(one, str) for one in names.values()):
            raise self.error(f"{INDEX!r} has no weight_map")
        files = sorted(set(names.values()))
        if len(files) > MAX_SHARDS:
            raise self.error(f"{INDEX!r} lists {len(files):,} files")
        shards: dict[str, Path] = {}
        for file in files:
            path = self.find(file)
            if path is None or not file.endswith(".safetensors"):
                what = "is missing" if path is None else "is not a safetensors file"
                raise self.error(f"{file[:MAX_NAME]!r}, listed in {INDEX}, {what}")
            shards[file] = path
        held = {file: self._shapes(path) for file, path in shards.items()}
        for tensor, file in names.items():
            if tensor not in held[file]:
                raise self.error(f"{file!r} has no tensor {tensor[:MAX_NAME]!r}")
        return {tensor: shards[file] for tensor, file in names.items()}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each tensor, from the headers of the files."""
        found: dict[str, tuple[int, ...]] = {}
        for path in sorted(set(self.weight_files.values())):
            found |= self._shapes(path)
        return {name: found[name] for name in self.weight_files}

    def _shapes(self, path: Path) -> dict[str, tuple[int, ...]]:
        """Names and shapes in one file; raises unless it is valid and floating point."""
        try:
            with safe_open(path, framework="pt") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                for name, part in slices.items():
                    if part.get_dtype() not in DTYPES:
                        what = f"tensor {name[:MAX_NAME]!r} has type {part.get_dtype()}"
                        raise self.error(what, f"save the model in one of {', '.join(DTYPES)}")
                return {name: tuple(part.get_shape()) for name, part in slices.items()}
        except (SafetensorError, OSError) as error:
            what = str(error).splitlines()[0]
            raise self.error(f"{path.name!r} is not a valid safetensors file ({what})") from None

    def read_tensor(self, name: str) -> Tensor:
        """One tensor, in float32."""
        path = self.weight_files[name]
        try:
            with safe_open(path, framework="pt") as file:
                return file.get_tensor(name).to(torch.float32)
        except (SafetensorError, OSError) as error:
            what = str(error).splitlines()[0]
            raise self.error(f"{path.name!r} cannot be read ({what})") from None

    def _no_weights(self) -> HuggingFaceError:
        others = sorted(
            path.name for path in self.home.iterdir() if path.name.endswith(OTHER_WEIGHTS)
        )
        if not others:
            return self.error(f"it has no {WEIGHTS}", "download all files of the model")
        convert = (
            "from transformers import AutoModelForSeq2SeqLM as M; "
            f"M.from_pretrained({self.name!r}).save_pretrained({self.name!r})"
        )
        return self.error(
            f"it has no {WEIGHTS}, only {others[0]!r}, a format that can run code when it is read",
            f'if you trust it, convert it with python -c "{convert}"',
        )
