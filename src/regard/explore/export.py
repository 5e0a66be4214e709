"""Export: a trace as a file that other programs read."""

from __future__ import annotations

import csv
import io
import itertools
import pprint
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from safetensors.numpy import save

from regard.explore import STATIC
from regard.explore.describe import described
from regard.explore.numbers import dumps
from regard.explore.refusals import invalid
from regard.explore.traces import Held

Arrays = dict[str, Float32[np.ndarray, "..."]]
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run


class File(NamedTuple):
    """What is sent: its bytes, their kind and the end of the file's name."""

    content: bytes
    media: str
    suffix: str


def exported(held: Held, format: str, names: Sequence[str] = (), hash: str = "", static: Path = STATIC) -> File:
    """The trace in one of the formats; `names` are the tensors that are wanted."""
    if format == "html":
        from regard.explore.frozen import frozen

        return File(frozen(held, hash, static).encode(), "text/html; charset=utf-8", "html")
    return FORMATS[format](held, names)


def tensors(held: Held, names: Sequence[str]) -> bytes:
    """Some tensors as one safetensors file."""
    return save(arrays(held, names))


def arrays(held: Held, names: Sequence[str]) -> Arrays:
    """The tensors of these names; all without any."""
    return {name: np.asarray(held.tensor(name).numpy(), np.float32, order="C") for name in names or held.trace.names}


def _safetensors(held: Held, names: Sequence[str]) -> File:
    facts = {"trace": dumps(described(held))}
    return File(save(arrays(held, names), metadata=facts), "application/octet-stream", "safetensors")


def _npz(held: Held, names: Sequence[str]) -> File:
    file = io.BytesIO()
    np.savez(file, **arrays(held, names))  # type: ignore[arg-type] # it takes arrays by any name
    return File(file.getvalue(), "application/zip", "npz")


def _json(held: Held, names: Sequence[str]) -> File:
    values = {name: array.tolist() for name, array in arrays(held, names).items()} if names else {}
    return File(dumps({"trace": described(held), "tensors": values}).encode(), "application/json", "json")


def _csv(held: Held, names: Sequence[str]) -> File:
    if len(names) != 1:
        raise invalid("a CSV file holds one tensor; name it: name=enc.0.self.weights")
    (array,) = arrays(held, names).values()
    axes = held.trace.axes(names[0])
    titles = list(axes)
    if len(set(axes)) < len(axes):  # both of an attention's axes may be the source
        titles[-2:] = ["query", "key"]
    texts = {"source": [p.text for p in held.trace.source], "target": [p.text for p in held.trace.target]}
    words = [texts.get(axis) for axis in axes]
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([*_header(titles, words), "value"])
    for index in itertools.product(*map(range, array.shape)):
        writer.writerow([*_row(index, words), float(array[index])])
    return File(file.getvalue().encode(), "text/csv; charset=utf-8", "csv")


def _header(titles: Sequence[str], words: Sequence[list[str] | None]) -> Iterator[str]:
    for title, spelled in zip(titles, words, strict=True):
        yield title
        if spelled is not None:
            yield f"{title} token"


def _row(index: Sequence[int], words: Sequence[list[str] | None]) -> Iterator[int | str]:
    for place, spelled in zip(index, words, strict=True):
        yield place
        if spelled is not None:
            yield "'" + spelled[place] if spelled[place].startswith(FORMULA) else spelled[place]


def _python(held: Held, names: Sequence[str]) -> File:
    arrays(held, names)  # only names that are there
    ask, lines = held.ask, ["import regard", "from regard.trace import record", ""]
    if held.model.shipped:
        lines[0] = "from importlib.resources import files\n\nimport regard"
        lines.append(
            f'pipeline = regard.load(files("regard") / "data/models" / {held.model.folder.name!r}, device="cpu")'
        )
    else:
        lines.append(f'pipeline = regard.load({str(held.model.folder)!r}, device="cpu")')
    way = f"search=pipeline.search(beam={ask.decode.width})" if ask.target is None else f"target={ask.target!r}"
    edits = f", edits={pprint.pformat(ask.edits, sort_dicts=False)}" if ask.edits else ""
    lines += [f"trace = record(pipeline, {ask.source!r}, {way}{edits})", "print(trace.answer)"]
    lines += [f"print(trace[{name!r}])" for name in names]
    return File(("\n".join(lines) + "\n").encode(), "text/x-python; charset=utf-8", "py")


FORMATS: dict[str, Callable[[Held, Sequence[str]], File]] = {
    "safetensors": _safetensors,
    "npz": _npz,
    "json": _json,
    "csv": _csv,
    "python": _python,
}
