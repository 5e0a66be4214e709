"""Commands on large inputs: the shards of `regard predict`, and `regard join`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

ShardOption = Annotated[
    str | None,
    Parameter(help="Answer only part NUMBER of COUNT, as 3/64, to OUTPUT.shard-003-of-064."),
]
JoinOutput = Annotated[Path, Parameter(help="File to write: the --output of the shards.")]
ShardFiles = Annotated[
    Path, Parameter(help="Files of all shards (default: OUT.shard-*, found by name).")
]
RemoveShards = Annotated[bool, Parameter(help="Remove the shards when they are joined.")]


def join(out: JoinOutput, /, *shards: ShardFiles, remove: RemoveShards = False) -> None:
    """Join the shards of `regard predict --shard`: `regard join answers.txt`.

    Checks that every shard is there, complete and intact, and that all have the same model, options
    and input. The result equals the output of a single run.
    """
    from regard.commands.join import join as run

    run(out, list(shards), remove=remove)


# Commands with their order in `regard --help`.
COMMANDS: dict[Callable[..., None], int] = {join: 5}
