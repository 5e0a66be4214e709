"""A trace in a notebook: the explorer's page in an iframe, with all data inside.

>>> regard.record(pipeline, "attention").show()
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from regard.errors import RegardError
from regard.explore.messages import MAX_TOKENS, TraceRequest
from regard.explore.model_store import ServedModel
from regard.explore.offline_html import offline_page
from regard.explore.trace_store import StoredTrace

if TYPE_CHECKING:
    from regard.trace import Trace

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


def show(trace: Trace, *, height: int = 720) -> Frame:
    """The explorer's pages of a trace for a notebook: make it the last line of a cell.

    It contains every number of the trace. Another text or an edit needs a new trace.
    """
    if height < 1:
        raise RegardError(f"height must be at least 1 pixel; got {height}")
    for side, pieces in (("source", trace.source), ("target", trace.target)):
        count = len(pieces) - 1  # without the special token
        if count > MAX_TOKENS:
            limit = f"the page shows up to {MAX_TOKENS}"
            raise RegardError(f"the {side} has {count:,} tokens; {limit}: shorten it")
    bundle = trace.pipeline.bundle
    with TemporaryDirectory() as folder:
        from regard.bundle import save

        home = Path(folder) / _folder_name(bundle.card)
        save(home, bundle)  # the page describes a model from its files
        page = offline_page(stored_trace(trace, ServedModel(home)), "#/overview")
    return Frame(page, height, f"Regard: {trace.answer.source} → {trace.answer.text}")


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
