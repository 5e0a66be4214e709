"""Notebook: a trace as the explorer's page in a frame, all in one piece of HTML.

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
from regard.explore.frozen import frozen
from regard.explore.models import Offered
from regard.explore.requests import TOKENS, Ask
from regard.explore.traces import Held

if TYPE_CHECKING:
    from regard.trace import Trace

# A page inside another has that one's address for its links; here it gets its own back, and keeps its state there.
# It stands before the page's policy, which lets nobody else set it.
ADDRESS = '<base href="about:srcdoc">'

# It may run its script and save what it exports; it can reach neither the notebook around it nor its cookies.
SANDBOX = "allow-scripts allow-downloads"


@dataclass(frozen=True)
class Frame:
    """A page that a notebook shows in a frame, and that `save` writes as a file of its own."""

    page: str = field(repr=False)
    height: int
    title: str

    def _repr_html_(self) -> str:
        """The frame; the whole page is inside, escaped, so that nothing of it is part of the notebook."""
        page = re.sub("<head>", lambda found: found[0] + ADDRESS, self.page, count=1)
        style = f"width:100%;height:{self.height}px;border:0"
        return (
            f'<iframe title="{escape(self.title)}" sandbox="{SANDBOX}" style="{style}" srcdoc="{escape(page)}">'
            "</iframe>"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as one HTML file that any browser opens, without server or network."""
        file = Path(path)
        try:
            file.write_text(self.page, encoding="utf-8")
        except OSError as error:
            raise RegardError(f"cannot write {str(file)!r}: {error.strerror}; give another path") from None
        return file


def show(trace: Trace, *, height: int = 720) -> Frame:
    """The explorer's pages of a trace, as a notebook shows them: the last line of a cell is enough.

    Every number of the trace is inside. New ones, for another text or an edit, need a new trace.
    """
    if height < 1:
        raise RegardError(f"height must be at least 1 pixel; got {height}")
    for side, pieces in (("source", trace.source), ("target", trace.target)):
        if len(pieces) > TOKENS + 1:  # begin or end is one more
            raise RegardError(f"the {side} has {len(pieces) - 1:,} tokens; the page takes {TOKENS} at most: shorten it")
    bundle = trace.pipeline.bundle
    with TemporaryDirectory() as folder:
        from regard.bundle import save

        home = Path(folder) / _name(bundle.card)
        save(home, bundle)  # from its files the page knows a model, and the same weights have the same name everywhere
        page = frozen(held(trace, Offered(home)), "#/overview")
    return Frame(page, height, f"Regard: {trace.answer.source} → {trace.answer.text}")


def held(trace: Trace, model: Offered) -> Held:
    """A trace as the server would hold it, had it been asked for."""
    answer = trace.answer
    own = not trace.edits and model.pipeline(answer.source).ids == answer.ids  # else its target was given
    model.pipeline.model.float()  # as the trace is, whatever the weights are
    ask = Ask.model_construct(  # not parsed: the server's bounds are for what comes from outside
        model=model.id,
        source=answer.source,
        target=None if own else answer.text,
        edits=[change.model_dump(mode="json") for change in trace.edits],
    )
    return Held(ask, model, trace, 0.0, sum(trace[name].nbytes for name in trace.names))


def _name(card: dict[str, object]) -> str:
    """What a bundle without a folder is called: by its card, in letters that a file may have."""
    return re.sub(r"[^\w-]+", "-", str(card.get("name") or card.get("title") or "")).strip("-")[:60] or "model"
