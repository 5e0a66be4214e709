"""Frozen: the page and one trace in a single HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.explore import STATIC
from regard.explore.attended import alignment, wall
from regard.explore.caused import caused
from regard.explore.decoded import beams
from regard.explore.describe import described
from regard.explore.export import tensors
from regard.explore.graph import graph
from regard.explore.numbers import dumps
from regard.explore.output import output
from regard.explore.refusals import Refusal
from regard.explore.space import neighbours, space
from regard.explore.traces import Held
from regard.explore.walk import walk
from regard.trace.attention_analysis import MEAN

VERSION = 1


def frozen(held: Held, hash: str = "", static: Path = STATIC) -> str:
    """The built page with its script, its style and all numbers of a trace inside. It may load nothing else."""
    page = static / "index.html"
    if not page.is_file():
        raise Refusal(500, "no-page", f"the page {page.name!r} is missing from this installation; install it again")
    scripts: list[str] = []
    styles: list[str] = []

    def script(found: re.Match[str]) -> str:
        scripts.append(inside_script(_text(static, found["path"])))
        return ""

    def style(found: re.Match[str]) -> str:
        styles.append(_text(static, found["path"]).replace("</style", "<\\/style"))
        return f"<style>{styles[-1]}</style>"

    html = page.read_text(encoding="utf-8")
    html = re.sub(r'[ \t]*<script\b[^>]*\bsrc="(?P<path>[^"]+)"[^>]*></script>\n?', script, html)
    html = re.sub(r'<link rel="stylesheet"[^>]*\bhref="(?P<path>[^"]+)"[^>]*>', style, html)
    html = re.sub(r'(<link rel="icon"[^>]*\bhref=")(?P<path>[^"]+)(")', lambda m: _icon(static, m), html)
    data = dumps(block(held, hash))
    tail = f'<script type="application/json" id="frozen">{inside_json(data)}</script>\n'
    tail += "".join(f"<script>{text}</script>\n" for text in scripts)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, styles)}">'
    html = re.sub(r"(<meta charset=[^>]*>)", lambda m: f"{m[1]}\n    {policy}", html, count=1)
    return re.sub("</body>", lambda _: f"{tail}</body>", html, count=1)


def block(held: Held, hash: str = "") -> dict[str, Any]:
    """What the page reads instead of asking a server."""
    return {
        "version": VERSION,
        "model": held.model.entry,
        "graph": graph(held.model),
        "request": held.ask.model_dump(mode="json"),
        "trace": described(held),
        "tensors": base64.b64encode(tensors(held, ())).decode(),
        "reads": dict(reads(held)),
        "hash": hash,
    }


def reads(held: Held) -> Iterator[tuple[str, Any]]:
    """Every view of the trace, under the address that the page asks for."""
    trace = held.trace
    for side, pieces in (("source", trace.source), ("target", trace.target)):
        yield f"space?side={side}", space(held, side)
        for position in range(len(pieces)):
            yield f"neighbours?side={side}&position={position}&n=10", neighbours(held, side, position, 10)
            yield f"walk?side={side}&position={position}", walk(held, side, position)
    for row in range(len(trace.target)):
        yield f"output?row={row}&n=20", output(held, row, 20, None)
    if crossing := [one.name for one in trace.attentions if one.kind == "cross"]:
        for attention in (MEAN, *crossing):
            yield f"alignment?attention={attention}", alignment(held, attention)
    if not held.ask.edits:
        if crossing:
            yield "causes", caused(held)
        width = held.ask.decode.width
        yield f"beam?width={width}", beams(held, width)
    yield "wall", wall(held)


def inside_script(text: str) -> str:
    """JavaScript that HTML cannot end or open a comment in; to JavaScript it is the same."""
    return re.sub("</(script)", r"<\\/\1", text, flags=re.IGNORECASE).replace("<!--", "<\\!--")


def inside_json(text: str) -> str:
    """JSON without any `<`, so that HTML finds nothing in it."""
    return text.replace("<", "\\u003c")


def _text(static: Path, path: str) -> str:
    return (static / path.removeprefix("./").removeprefix("/")).read_text(encoding="utf-8")


def _icon(static: Path, found: re.Match[str]) -> str:
    path = static / found["path"].removeprefix("./").removeprefix("/")
    kind = mimetypes.guess_type(path.name)[0] or "image/svg+xml"
    return f"{found[1]}data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}{found[3]}"


def _policy(scripts: list[str], styles: list[str]) -> str:
    """Only the script and the style that are inside may run, and nothing may be loaded."""
    hashes = [" ".join(f"'sha256-{_digest(text)}'" for text in texts) or "'none'" for texts in (scripts, styles)]
    return f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; img-src data: blob:; base-uri 'none'"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
