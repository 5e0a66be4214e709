"""HTML of the reports: documents with their style sheet inside, sections, tables, and the page of a
sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources

from regard import __version__
from regard.reports.charts import bar_chart, escape


def document(title: str, inside: str) -> str:
    """A page with its style sheet inside."""
    style = resources.files("regard").joinpath("reports/page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        '</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body><main>{inside}"
        f"<footer>Written by Regard {__version__}.</footer></main></body></html>\n"
    )


def section(name: str, title: str, inside: str) -> str:
    """A section with a heading."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{inside}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """A table of HTML cells; the last `numbers` columns are right-aligned."""
    first = len(head) - numbers
    kinds = ["" if i < first else ' class="number"' for i in range(len(head))]
    cells = "".join(f"<th{kind}>{escape(n)}</th>" for n, kind in zip(head, kinds, strict=True))
    top = f"<thead><tr>{cells}</tr></thead>" if any(head) else ""
    body = "".join(
        "<tr>" + "".join(f"<td{k}>{c}</td>" for c, k in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table>{top}<tbody>{body}</tbody></table></div>'


def sweep_page(
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    plot: tuple[str, Sequence[tuple[str, float, str]]],
) -> str:
    """The page of a sweep: a bar for each trial, and the table of results."""
    metric, bars = plot
    chart = bar_chart(bars, label=metric) if bars else ""
    cells = [[escape(cell) for cell in row] for row in rows]
    inside = f"<h1>{escape(name)}</h1><h2>{escape(metric)}</h2>{chart}<h2>All trials</h2>"
    return document(f"Sweep: {name}", inside + table(head, cells))
