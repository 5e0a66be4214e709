"""Shards of `regard predict`: their numbers, file names and the record of each.

OUT.shard-003-of-064             the answers of one shard
OUT.shard-003-of-064.progress    its record: options, model, input, lines; kept until the shards are
                                 joined. The files of a shard that is not complete are those of
                                 every resumable output.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from regard.errors import RegardError

MOST_SHARDS = 99_999
NAME = re.compile(r"(?P<out>.+)\.shard-(?P<number>\d+)-of-(?P<count>\d+)", re.DOTALL)


@dataclass(frozen=True, order=True)
class Shard:
    """One of `count` contiguous parts of an input; `number` counts from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """A shard from NUMBER/COUNT, such as 3/64."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
        found = cls(*map(int, match.groups())) if match else cls(0, 0)
        if not 1 <= found.number <= found.count <= MOST_SHARDS:
            raise RegardError(
                f"--shard expects NUMBER/COUNT from 1/COUNT to COUNT/COUNT, such as 3/64, with at "
                f"most {MOST_SHARDS:,} shards; got {text!r}"
            )
        return found

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def bounds(self, size: int) -> tuple[int, int]:
        """The positions of this shard among `size` positions: first, and first of the next."""
        return (self.number - 1) * size // self.count, self.number * size // self.count

    def path(self, out: Path) -> Path:
        """The file of this shard of an output."""
        digits = max(3, len(str(self.count)))
        return out.with_name(f"{out.name}.shard-{self.number:0{digits}}-of-{self.count:0{digits}}")


def parse_shard_name(path: Path) -> tuple[str, Shard] | None:
    """The output's name and the shard in the name of a shard file; None if it is another file."""
    match = NAME.fullmatch(path.name)
    return match and (match["out"], Shard(int(match["number"]), int(match["count"])))


def shard_files(out: Path) -> list[Path]:
    """The shards of an output, complete or not, by their names."""
    names = set()
    with suppress(OSError):
        for path in out.parent.iterdir():
            bare = path.with_name(path.name.removesuffix(".partial").removesuffix(".progress"))
            if (named := parse_shard_name(bare)) and named[0] == out.name:
                names.add(bare)
    return sorted(names)


def find_count(out: Path) -> int | None:
    """The number of shards that an earlier run divided an output into; None without any."""
    named = (parse_shard_name(path) for path in shard_files(out))
    return next((found[1].count for found in named if found is not None), None)


def record_path(path: Path) -> Path:
    """The record of a shard's file."""
    return path.with_name(f"{path.name}.progress")


def partial_path(path: Path) -> Path:
    """The file of an incomplete shard."""
    return path.with_name(f"{path.name}.partial")


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a shard, complete or not; None if there is none that can be read."""
    try:
        found = json.loads(record_path(path).read_bytes())
        required = ("options", "lines", "bytes")
        return found if isinstance(found, dict) and all(key in found for key in required) else None
    except (OSError, ValueError):
        return None


class ShardRecord(NamedTuple):
    """What identifies the file of a shard: its number, the input and the conversion when joined."""

    path: Path
    shard: Shard
    input: Mapping[str, Any]
    conversion: Mapping[str, Any] | None

    @property
    def facts(self) -> dict[str, Any]:
        """The record as JSON values, without the path."""
        shard = [self.shard.number, self.shard.count]
        values = {"shard": shard, "input": self.input, "conversion": self.conversion}
        return json.loads(json.dumps(values))


def is_complete(one: ShardRecord, options: Mapping[str, Any]) -> bool:
    """Whether a shard was completed with these options and this input, and is intact."""
    record = read_record(one.path)
    if record is None or not record.get("complete") or partial_path(one.path).exists():
        return False
    wanted = {**one.facts, "options": json.loads(json.dumps(options))}
    same = all(record.get(name) == value for name, value in wanted.items())
    return same and one.path.is_file() and file_sha256(one.path) == record.get("sha256")


def file_sha256(path: Path) -> str:
    """The sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
