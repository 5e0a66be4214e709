"""Exports: a trace as a file for other programs."""

from __future__ import annotations

import csv
import io
import itertools
import pprint
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float32
from safetensors.numpy import save

from regard.decoding_options import SearchOptions
from regard.explore import STATIC
from regard.explore.trace_json import describe
from regard.explore.trace_store import StoredTrace, check_model
from regard.web.json_messages import invalid, to_json

if TYPE_CHECKING:
    from regard.trace import Trace

Array = Float32[np.ndarray, "..."]
Arrays = dict[str, Array]
MAX_VOCABULARY = 2_048  # of a tensor that a page loads; larger ones are sent as the top tokens
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # text that a spreadsheet would run starts with these


class ExportedFile(NamedTuple):
    """The content of a file, its media type and the suffix of its name."""

    content: bytes
    media_type: str
    suffix: str


def export_trace(
    stored: StoredTrace,
    format: str,
    names: Sequence[str] = (),
    hash: str = "",
    static: Path = STATIC,
    weights_mb: float | None = None,
) -> ExportedFile:
    """The trace in one of the formats; `names` selects tensors. The weights of a page are limited
    to `weights_mb` megabytes."""
    if format == "html":
        from regard.explore.offline_arithmetic import WEIGHTS_MB
        from regard.explore.offline_html import offline_page

        limit = WEIGHTS_MB if weights_mb is None else weights_mb
        page = offline_page(stored, hash, static, limit)
        return ExportedFile(page.encode(), "text/html; charset=utf-8", "html")
    return FORMATS[format](stored, names)


def tensor_file(stored: StoredTrace, names: Sequence[str]) -> bytes:
    """Tensors for the page as a safetensors file; all without names, except those of a large
    vocabulary.

    The weight of a masked pair is −0, so that the page can tell it from a small weight."""
    trace = stored.trace
    for name in names:
        stored.tensor(name)  # raises if there is none
    large = [name for name in names or trace.names if is_large(trace, name)]
    if names and large:
        message = f"{large[0]} has a row for each of many tokens; use the output view, or export it"
        raise invalid(message, "large-vocabulary")
    sent = arrays(stored, [name for name in names or trace.names if name not in large])
    return save({name: _mark_masked(stored, name, array) for name, array in sent.items()})


def _mark_masked(stored: StoredTrace, name: str, array: Array) -> Array:
    scores = name.removesuffix(".weights") + ".masked"
    if not name.endswith(".weights") or scores not in stored.trace.names:
        return array
    masked = np.isneginf(stored.tensor(scores).numpy()) & (array == 0)
    return np.where(masked, np.float32(-0.0), array)


def is_large(trace: Trace, name: str) -> bool:
    """Whether a tensor has an axis of more tokens than a page shows."""
    pairs = zip(trace.axes(name), trace[name].shape, strict=True)
    return any(axis == "vocabulary" and size > MAX_VOCABULARY for axis, size in pairs)


def arrays(stored: StoredTrace, names: Sequence[str]) -> Arrays:
    """The tensors with these names as arrays; all without names."""
    return {
        name: np.asarray(stored.tensor(name).numpy(), np.float32, order="C")
        for name in names or stored.trace.names
    }


def _safetensors(stored: StoredTrace, names: Sequence[str]) -> ExportedFile:
    content = save(arrays(stored, names), metadata={"trace": to_json(describe(stored))})
    return ExportedFile(content, "application/octet-stream", "safetensors")


def _npz(stored: StoredTrace, names: Sequence[str]) -> ExportedFile:
    file = io.BytesIO()
    np.savez(file, **arrays(stored, names))  # type: ignore[arg-type] # arrays by any name
    return ExportedFile(file.getvalue(), "application/zip", "npz")


def _json(stored: StoredTrace, names: Sequence[str]) -> ExportedFile:
    selected = arrays(stored, names) if names else {}
    values = {name: array.tolist() for name, array in selected.items()}
    text = to_json({"trace": describe(stored), "tensors": values})
    return ExportedFile(text.encode(), "application/json", "json")


def _csv(stored: StoredTrace, names: Sequence[str]) -> ExportedFile:
    if len(names) != 1:
        raise invalid("a CSV file contains one tensor; select it: name=enc.0.self.weights")
    (array,) = arrays(stored, names).values()
    axes = stored.trace.axes(names[0])
    titles = list(axes)
    if len(set(axes)) < len(axes):  # self-attention: both axes are the same text
        titles[-2:] = ["query", "key"]
    texts = {
        "source": [piece.text for piece in stored.trace.source],
        "target": [piece.text for piece in stored.trace.target],
    }
    tokens = [texts.get(axis) for axis in axes]
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([*_csv_header(titles, tokens), "value"])
    for index in itertools.product(*map(range, array.shape)):
        writer.writerow([*_csv_row(index, tokens), float(array[index])])
    return ExportedFile(file.getvalue().encode(), "text/csv; charset=utf-8", "csv")


def _csv_header(titles: Sequence[str], tokens: Sequence[list[str] | None]) -> Iterator[str]:
    for title, texts in zip(titles, tokens, strict=True):
        yield title
        if texts is not None:
            yield f"{title} token"


def _csv_row(index: Sequence[int], tokens: Sequence[list[str] | None]) -> Iterator[int | str]:
    for at, texts in zip(index, tokens, strict=True):
        yield at
        if texts is not None:
            yield "'" + texts[at] if texts[at].startswith(FORMULA) else texts[at]


def _python(stored: StoredTrace, names: Sequence[str]) -> ExportedFile:
    """A script that records the same trace and prints the selected tensors."""
    arrays(stored, names)  # raises for unknown names
    request, folder = stored.request, stored.model.folder
    imports = ["import regard", "from regard.trace import record", ""]
    path = repr(str(folder))
    if stored.model.included:
        imports.insert(0, "from importlib.resources import files\n")
        path = f'files("regard") / "data/models" / {folder.name!r}'
    if request.target is None:
        options = {
            name: value
            for name, value in vars(request.options).items()
            if value != getattr(SearchOptions, name)
        }
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        target = f"search=pipeline.search({given})"
    else:
        target = f"target={request.target!r}"
    formatted = pprint.pformat(request.edits, sort_dicts=False)
    edits = f", edits={formatted}" if request.edits else ""
    opened = f'regard.load({path}, device="cpu")'
    if request.checkpoint is not None:
        check_model(stored)
        imports.insert(-1, "from regard.trace.film_probes import load_snapshot")
        opened = f"load_snapshot({path}, {request.checkpoint})"
    lines = [
        *imports,
        f"pipeline = {opened}",
        f"trace = record(pipeline, {request.source!r}, {target}{edits})",
        "print(trace.answer)",
        *(f"print(trace[{name!r}])" for name in names),
    ]
    return ExportedFile(("\n".join(lines) + "\n").encode(), "text/x-python; charset=utf-8", "py")


FORMATS: dict[str, Callable[[StoredTrace, Sequence[str]], ExportedFile]] = {
    "safetensors": _safetensors,
    "npz": _npz,
    "json": _json,
    "csv": _csv,
    "python": _python,
}
