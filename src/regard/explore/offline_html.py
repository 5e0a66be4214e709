"""The page and one trace in a single HTML file without server or network; also for notebooks.

>>> regard.record(pipeline, "attention").show()
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from regard.decoding_options import DEFAULT_BEAM
from regard.errors import RegardError
from regard.explore import STATIC, analysis_views
from regard.explore.array_model import ArrayModel
from regard.explore.export import tensor_file
from regard.explore.head_views import head_statistics
from regard.explore.messages import MAX_TOKENS, TraceRequest
from regard.explore.model_store import ServedModel
from regard.explore.offline_arithmetic import WEIGHTS_MB, check_weights_mb, offline_arithmetic
from regard.explore.offline_tables import lens_ranks, offline_tables
from regard.explore.tokenization_view import tokenization
from regard.explore.trace_json import describe, model_graph
from regard.explore.trace_store import StoredTrace
from regard.trace.attention_analysis import MEAN
from regard.web.access import HttpError
from regard.web.json_messages import to_json

if TYPE_CHECKING:
    from regard.trace import Trace


VERSION = 1
ARITHMETIC = "arithmetic.js"  # the script that only a saved page has


def offline_page(
    stored: StoredTrace, hash: str = "", static: Path = STATIC, weights_mb: float = WEIGHTS_MB
) -> str:
    """The built page with scripts, style and data inside. Its policy forbids loading anything."""
    index = static / "index.html"
    for file in (index, static / ARITHMETIC):
        if not file.is_file():
            message = f"the page {file.name!r} is missing from this installation; reinstall regard"
            raise HttpError(500, "no-page", message)
    scripts: list[str] = [escape_script(_read(static, ARITHMETIC))]
    styles: list[str] = []

    def remove_script(match: re.Match[str]) -> str:
        scripts.append(escape_script(_read(static, match["path"])))
        return ""

    def inline_style(match: re.Match[str]) -> str:
        styles.append(_read(static, match["path"]).replace("</style", "<\\/style"))
        return f"<style>{styles[-1]}</style>"

    html = index.read_text(encoding="utf-8")
    script = r'[ \t]*<script\b[^>]*\bsrc="(?P<path>[^"]+)"[^>]*></script>\n?'
    html = re.sub(script, remove_script, html)
    style = r'<link rel="stylesheet"[^>]*\bhref="(?P<path>[^"]+)"[^>]*>'
    html = re.sub(style, inline_style, html)
    icon = r'(<link rel="icon"[^>]*\bhref=")(?P<path>[^"]+)(")'
    html = re.sub(icon, lambda match: _inline_icon(static, match), html)
    data = escape_json(to_json(offline_data(stored, hash, weights_mb)))
    tail = f'<script type="application/json" id="offline-data">{data}</script>\n'
    tail += "".join(f"<script>{text}</script>\n" for text in scripts)
    policy = _policy(scripts, styles)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = re.sub(r"(<meta charset=[^>]*>)", lambda match: f"{match[1]}\n    {meta}", html, count=1)
    return re.sub("</body>", lambda _: f"{tail}</body>", html, count=1)


def offline_data(
    stored: StoredTrace, hash: str = "", weights_mb: float = WEIGHTS_MB
) -> dict[str, Any]:
    """The data that the page reads instead of requesting it from a server."""
    return {
        "version": VERSION,
        "model": stored.model.entry,
        "graph": _graph(stored.model),
        "request": stored.request.model_dump(mode="json"),
        "trace": describe(stored),
        "tensors": base64.b64encode(tensor_file(stored, ())).decode(),
        "views": dict(all_views(stored)),
        "tables": offline_tables(stored) if stored.trace.has_model else None,
        "arithmetic": offline_arithmetic(stored, weights_mb),
        "hash": hash,
    }


def _graph(model: ServedModel) -> dict[str, Any]:
    return model.graph() if isinstance(model, ArrayModel) else model_graph(model)


def all_views(stored: StoredTrace) -> Iterator[tuple[str, Any]]:
    """Every view of the trace with the address that the page requests."""
    views, trace = analysis_views, stored.trace
    if not trace.has_model:
        yield from _views_of_arrays(stored)
        return
    for side, pieces in (("source", trace.source), ("target", trace.target)):
        yield f"embedding-space?side={side}", views.embedding_plane(stored, side)
        yield f"tokenization?side={side}", tokenization(stored, side)
        for position in range(len(pieces)):
            where = f"side={side}&position={position}"
            yield f"neighbours?{where}&n=10", views.neighbours(stored, side, position, 10)
            yield f"residual-stream?{where}", views.residual_stream(stored, side, position)
    for row in range(len(trace.target)):
        yield f"output?row={row}&n=20", views.output(stored, row, 20, None)
    cross = [one.name for one in trace.attentions if one.kind == "cross"]
    if cross:
        for attention in (MEAN, *cross):
            yield f"alignment?attention={attention}", views.alignment(stored, attention)
    if not stored.request.edits:
        if cross:
            yield "occlusion", views.occlusion(stored)
        beam = stored.request.options.beam or DEFAULT_BEAM
        yield f"beam-tree?beam={beam}", views.beam_tree(stored, beam)
    yield "heads", head_statistics(stored)
    yield from lens_ranks(trace)


def _views_of_arrays(stored: StoredTrace) -> Iterator[tuple[str, Any]]:
    """The views that need no model."""
    views, trace = analysis_views, stored.trace
    if "out.top.ids" in trace or "out.logits" in trace:
        for row in range(len(trace.target)):
            yield f"output?row={row}&n=20", views.output(stored, row, 20, None)
    cross = [one.name for one in trace.attentions if one.kind == "cross"]
    for attention in (MEAN, *cross) if cross else ():
        yield f"alignment?attention={attention}", views.alignment(stored, attention)
    yield "heads", head_statistics(stored)


def escape_script(text: str) -> str:
    """Equivalent JavaScript that cannot end its HTML element or open a comment."""
    escaped = re.sub("</(script)", r"<\\/\1", text, flags=re.IGNORECASE)
    return escaped.replace("<!--", "<\\!--")


def escape_json(text: str) -> str:
    """Equivalent JSON without `<`, so that it contains no HTML."""
    return text.replace("<", "\\u003c")


def _read(static: Path, path: str) -> str:
    return (static / path.removeprefix("./").removeprefix("/")).read_text(encoding="utf-8")


def _inline_icon(static: Path, match: re.Match[str]) -> str:
    path = static / match["path"].removeprefix("./").removeprefix("/")
    kind = mimetypes.guess_type(path.name)[0] or "image/svg+xml"
    content = base64.b64encode(path.read_bytes()).decode()
    return f"{match[1]}data:{kind};base64,{content}{match[3]}"


def _policy(scripts: list[str], styles: list[str]) -> str:
    """A policy that allows only the inlined script and style, and loads nothing."""
    script, style = (
        " ".join(f"'sha256-{_digest(text)}'" for text in texts) or "'none'"
        for texts in (scripts, styles)
    )
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src data: blob:; "
        "base-uri 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# An embedded page resolves links against its parent's address; this gives it its own address back,
# where it keeps its state. It comes before the page's policy, which forbids other base elements.
BASE = '<base href="about:srcdoc">'

# The page may run its script and save exports, but cannot reach the notebook or its cookies.
SANDBOX = "allow-scripts allow-downloads"


@dataclass(frozen=True)
class Frame:
    """The explorer's page of one trace: shown by a notebook, written to a file by `save`."""

    page: str = field(repr=False)
    height: int
    title: str

    def _repr_html_(self) -> str:
        """The iframe. The page is escaped inside it, so no part of it belongs to the notebook."""
        page = re.sub("<head>", lambda match: match[0] + BASE, self.page, count=1)
        style = f"width:100%;height:{self.height}px;border:0"
        attributes = f'title="{escape(self.title)}" sandbox="{SANDBOX}" style="{style}"'
        return f'<iframe {attributes} srcdoc="{escape(page)}"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as one HTML file that any browser opens without server or network."""
        file = Path(path)
        try:
            file.write_text(self.page, encoding="utf-8")
        except OSError as error:
            message = f"cannot write {str(file)!r}: {error.strerror}; choose another path"
            raise RegardError(message) from None
        return file


def show(trace: Trace, *, height: int = 720, weights_mb: float = WEIGHTS_MB) -> Frame:
    """The explorer's pages of a trace for a notebook: make it the last line of a cell.

    It contains every number of the trace and its arithmetic, with at most `weights_mb` megabytes
    of weights. Another text or an edit needs a new trace.
    """
    check_weights_mb(weights_mb)
    if height < 1:
        raise RegardError(f"height must be at least 1 pixel; got {height}")
    for side, pieces in (("source", trace.source), ("target", trace.target)):
        count = len(pieces) - 1  # without the special token
        if count > MAX_TOKENS:
            limit = f"the page shows up to {MAX_TOKENS}"
            raise RegardError(f"the {side} has {count:,} tokens; {limit}: shorten it")
    title = f"Regard: {trace.answer.source} → {trace.answer.text}"
    if not trace.has_model:
        stored = stored_arrays(trace)
        return Frame(offline_page(stored, "#/attention", weights_mb=weights_mb), height, title)
    bundle = trace.pipeline.bundle
    with TemporaryDirectory() as folder:
        from regard.bundle import save

        home = Path(folder) / _folder_name(bundle.card)
        save(home, bundle)  # the page describes a model from its files
        stored = stored_trace(trace, ServedModel(home))
        page = offline_page(stored, "#/overview", weights_mb=weights_mb)
    return Frame(page, height, title)


def stored_arrays(trace: Trace) -> StoredTrace:
    """A trace of given numbers as the server would store it."""
    model, answer = ArrayModel(trace), trace.answer
    request = TraceRequest.model_construct(model=model.id, source=answer.source, target=answer.text)
    return StoredTrace(request, model, trace, 0.0, sum(trace[name].nbytes for name in trace))


def stored_trace(trace: Trace, model: ServedModel) -> StoredTrace:
    """A trace as the server would store it after a request."""
    answer = trace.answer
    generated = not trace.edits and model.pipeline(answer.source).ids == answer.ids
    model.pipeline.model.float()  # traces are float32, whatever the dtype of the weights
    request = TraceRequest.model_construct(  # unchecked: the limits are for remote requests
        model=model.id,
        source=answer.source,
        target=None if generated else answer.text,
        edits=[edit.model_dump(mode="json") for edit in trace.edits],
    )
    size = sum(trace[name].nbytes for name in trace.names)
    return StoredTrace(request, model, trace, 0.0, size)


def _folder_name(card: dict[str, object]) -> str:
    """A folder name from the name or title on a card."""
    name = str(card.get("name") or card.get("title") or "")
    return re.sub(r"[^\w-]+", "-", name).strip("-")[:60] or "model"
