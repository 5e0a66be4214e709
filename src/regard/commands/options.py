"""Options of the commands: output format, cleaning rules, settings of --config and --set, "-"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, suggestion

# Stands for "-" while the parser tells arguments from options, because it takes "-" for an option.
# Nobody can type this character.
DASH = "\0"


@dataclass(frozen=True)
class OutputFormat:
    """What `regard predict` writes for each answer."""

    scores: bool = False
    """Write the score before each answer: SCORE⇥ANSWER (log p over the length penalty)."""

    alignments: bool = False
    """Write the alignment after each answer: ANSWER⇥0-0 1-1 3-2 (source-answer, from 0)."""

    json: bool = False
    """Write JSON lines with tokens, log-probabilities, alternatives and alignment matrices."""


@dataclass(frozen=True)
class CleaningRules:
    """The rules of `regard clean`. Bad lines are always dropped."""

    keep_duplicates: bool = False
    """Keep exact duplicates of an earlier pair."""

    keep_broken: bool = False
    """Keep pairs with broken characters, such as signs of a wrong encoding."""

    max_ratio: float = 5.0
    """Maximum length ratio, relative to the typical one (0: keep all)."""

    max_length: int = 0
    """Maximum characters of a side (0: no limit)."""

    drop_conflicts: bool = False
    """Keep only the most frequent target of each source (of equal ones, the first)."""

    drop_identical: bool = False
    """Drop pairs whose target equals their source."""

    drop_scripts: bool = False
    """Drop pairs in another script than the rest."""

    drop_markup: bool = False
    """Drop pairs with web addresses or markup."""


def restore_dashes(app: object, commands: object, arguments: Iterable[Any]) -> None:
    """Put "-" back in place of DASH; the parser calls this before it converts its tokens."""
    for argument in arguments:
        tokens = argument.tokens
        argument.tokens = [t.evolve(value="-") if t.value == DASH else t for t in tokens]


def read_settings(config: Path | None, overrides: list[str]) -> dict[str, dict[str, Any]]:
    """The groups of settings from a TOML file and from --set, which takes precedence."""
    import tomllib

    from regard.config import read_toml

    groups: dict[str, dict[str, Any]] = {"model": {}, "text": {}, "train": {}}

    def update(group: str, values: Any, where: str) -> None:
        if group in groups and not isinstance(values, dict):
            raise RegardError(
                f"{group!r} in {where} must be a group of settings, as [{group}]; got {values!r}"
            )
        if group not in groups:
            raise RegardError(f"unknown setting {group!r} in {where}; {suggestion(group, groups)}")
        groups[group].update(values)

    for group, values in (read_toml(config) if config else {}).items():
        update(group, values, str(config))
    for override in overrides:
        name, _, value = override.partition("=")
        group, _, key = name.partition(".")
        if not key or "=" not in override:
            raise RegardError(
                f"--set expects GROUP.NAME=VALUE, such as model.width=128; got {override!r}"
            )
        try:
            update(group, {key: tomllib.loads(f"x = {value}")["x"]}, "--set")
        except tomllib.TOMLDecodeError:
            update(group, {key: value}, "--set")  # an unquoted word is a string
    if not isinstance(kind := groups["model"].get("kind", ""), str):
        raise RegardError(f"model.kind must be 'transformer' or 'recurrent'; got {kind!r}")
    return groups


def run_name(path: Path) -> str:
    """The default name of a training run: its first file's name without suffixes."""
    return path.name.split(".")[0] or "run" if str(path) != "-" else "stdin"
