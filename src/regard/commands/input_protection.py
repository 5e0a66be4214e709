"""Protection of inputs: no command overwrites, truncates or deletes a file that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.commands.output_files import resolve_link
from regard.errors import RegardError

# The files that a command writes beside its output, by the name of the output.
PREDICT_FILES = ("{}.partial", "{}.progress", ".{}.progress", ".{}.new")
TABLE_FILES = (".{}.partial",)
CLEAN_FILES = (".{}.partial", ".{}.new", "{}.dropped.tsv")


def check_not_input(path: Path | None, inputs: Iterable[Path], beside: Sequence[str] = ()) -> None:
    """Raise if the output, or a file that the command writes beside it, is also an input."""
    if path is None:
        return
    written = resolve_link(path)
    owned = [path, *(written.with_name(name.format(written.name)) for name in beside)]
    for one in inputs:
        for own in owned:
            if own.is_file() and one.is_file() and own.samefile(one):
                what = f"--output {str(path)!r} is also an input and would be overwritten"
                if own is not path:
                    what = f"--output {str(path)!r} would overwrite the input {str(own)!r}"
                raise RegardError(f"{what}; name another file")
