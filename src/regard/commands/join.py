"""`regard join`: checks the shards of an output and concatenates them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from regard.commands.answer_formats import FileConversion
from regard.commands.output_files import check_not_folder, resolve_link, write_error
from regard.commands.shards import (
    Shard,
    parse_shard_name,
    partial_path,
    read_record,
    record_path,
    shard_files,
)
from regard.disk import fsync_path
from regard.errors import RegardError

COPY_BYTES = 1 << 20


class ShardAnswers(NamedTuple):
    """A complete shard: its file and its record."""

    path: Path
    record: dict[str, Any]


def join(out: Path, shards: Sequence[Path] = (), *, remove: bool = False) -> None:
    """Write the answers of all shards to one file, which appears complete."""
    out = resolve_link(out)
    check_not_folder(out)
    found = [read_shard(path, shard) for path, shard in find_shards(out, shards)]
    check_same(found)
    conversion = FileConversion.of(found[0].record["conversion"])
    if conversion is not None and out.suffix.lower() != conversion.suffix:
        raise RegardError(
            f"cannot write {str(out)!r}: these shards are of a {conversion.suffix} file; name it so"
        )
    fresh, text = out.with_name(f".{out.name}.joined"), out.with_name(f".{out.name}.text")
    try:
        concatenate(found, fresh if conversion is None else text)
        if conversion is not None:
            conversion(text, fresh)
            fsync_path(fresh)
        fresh.replace(out)
        fsync_path(out.parent)
    except OSError as error:
        raise write_error(out, error) from None
    finally:
        for path in (fresh, text):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    lines = sum(one.record["lines"] for one in found)
    print(f"{out}: {lines:,} lines of {len(found):,} shards", file=sys.stderr)
    for one in found if remove else ():
        one.path.unlink()
        record_path(one.path).unlink()


def find_shards(out: Path, given: Sequence[Path]) -> list[tuple[Path, Shard]]:
    """The files of all shards in order: the given ones, or those named after the output."""
    paths = list(given) or shard_files(out)
    shards: dict[Shard, Path] = {}
    for path in paths:
        named = parse_shard_name(path)
        if named is None:
            raise RegardError(
                f"{str(path)!r} is not the file of a shard; they are named OUT.shard-003-of-064"
            )
        if (twin := shards.setdefault(named[1], path)) != path:
            raise RegardError(f"shard {named[1]} is given twice: {str(twin)!r} and {str(path)!r}")
    if not shards:
        first = Shard(1, 8)
        raise RegardError(
            f"no shards of {str(out)!r} (such as {first.path(out).name}); write them with "
            f"regard predict --output {out} --shard {first}"
        )
    counts = sorted({shard.count for shard in shards})
    if len(counts) > 1:
        listed = " and of ".join(map(str, counts))
        raise RegardError(
            f"there are shards of {listed}; remove those of the other run, or name all"
        )
    missing = [n for n in range(1, counts[0] + 1) if Shard(n, counts[0]) not in shards]
    if missing:
        first = Shard(missing[0], counts[0])
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise RegardError(
            f"shard {first}{more} of {str(out)!r} is missing; run its command, with --shard {first}"
        )
    return [(shards[shard], shard) for shard in sorted(shards)]


def read_shard(path: Path, shard: Shard) -> ShardAnswers:
    """A shard with its record; one that is not complete raises."""
    record = read_record(path)
    if record is None:
        raise RegardError(
            f"shard {shard} has no record {record_path(path).name!r}; keep it beside the shard, or "
            f"run its command again with --shard {shard} --restart"
        )
    if not record.get("complete") or partial_path(path).exists() or not path.is_file():
        lines = f"{record['lines']:,} lines so far"
        raise RegardError(
            f"shard {shard} is incomplete ({lines}); run its command again, with --shard {shard}"
        )
    if record["shard"] != [shard.number, shard.count]:
        number, count = record["shard"]
        raise RegardError(f"{str(path)!r} is shard {number}/{count}, not {shard}; name it so")
    return ShardAnswers(path, record)


def check_same(shards: Sequence[ShardAnswers]) -> None:
    """Raise if a shard was made with another model, other options or another input."""
    first = shards[0].record
    for one in shards[1:]:
        number, count = one.record["shard"]
        again = f"run it again with --shard {number}/{count} --restart"
        options, others = first["options"], one.record["options"]
        for name in {**options, **others}:
            was, now = options.get(name), others.get(name)
            if was != now:
                what = f"{name} {now!r} instead of {was!r}"
                what = "another bundle" if name == "bundle" else what
                raise RegardError(f"shard {number}/{count} has {what}, unlike shard 1; {again}")
        for name, what in (("input", "input"), ("conversion", "output format")):
            if first[name] != one.record[name]:
                raise RegardError(
                    f"shard {number}/{count} has another {what} than shard 1; {again}"
                )


def concatenate(shards: Sequence[ShardAnswers], path: Path) -> None:
    """Copy all shards to a file, on disk; a shard that was changed raises."""
    with open(path, "wb") as file:
        for one in shards:
            digest = hashlib.sha256()
            with open(one.path, "rb") as answers:
                while block := answers.read(COPY_BYTES):
                    digest.update(block)
                    file.write(block)
            if digest.hexdigest() != one.record["sha256"]:
                number, count = one.record["shard"]
                raise RegardError(
                    f"shard {number}/{count} was changed after it was written; run its command "
                    f"again, with --shard {number}/{count} --restart"
                )
    fsync_path(path)
