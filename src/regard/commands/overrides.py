"""Given: what stands on the command line, read: groups of settings, the name of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import RegardError, suggestion


def settings(config: Path | None, overrides: list[str]) -> dict[str, dict[str, Any]]:
    """The groups of settings from a file and from --set, the latter over the former."""
    import tomllib

    from regard.config import read_toml

    groups: dict[str, dict[str, Any]] = {"model": {}, "text": {}, "train": {}}

    def put(group: str, values: Any, where: str) -> None:
        if group in groups and not isinstance(values, dict):
            raise RegardError(f"{group!r} in {where} is a group of settings, as [{group}]; got {values!r}")
        if group not in groups:
            raise RegardError(f"unknown setting {group!r} in {where}; {suggestion(group, groups)}")
        groups[group].update(values)

    for group, values in (read_toml(config) if config else {}).items():
        put(group, values, str(config))
    for override in overrides:
        name, equals, value = override.partition("=")
        group, dot, key = name.partition(".")
        if not (equals and dot and key):
            raise RegardError(f"--set wants GROUP.NAME=VALUE, such as model.width=128; got {override!r}")
        try:
            put(group, {key: tomllib.loads(f"x = {value}")["x"]}, "--set")
        except tomllib.TOMLDecodeError:
            put(group, {key: value}, "--set")  # a bare word is a string
    if not isinstance(kind := groups["model"].get("kind", ""), str):
        raise RegardError(f"model.kind is a word, transformer or recurrent; got {kind!r}")
    return groups


def stem(path: Path) -> str:
    """What a run on a file is called."""
    return path.name.split(".")[0] or "run" if str(path) != "-" else "stdin"
