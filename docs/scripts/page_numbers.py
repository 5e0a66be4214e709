"""Fills in numbers of README and docs from the kept benchmark results.

A number between `<!--n:NAME-->` and `<!--/n-->` is replaced by the one that page_numbers.toml
names: file, check and format, optionally divided by another check or by a constant. Text between
`<!--t:NAME-->` and `<!--/t-->` is replaced by a table of number_tables.py.
"""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"<!--t:(\w+)-->\n.*?<!--/t-->", re.DOTALL)
MARK = re.compile(r"<!--n:(\w+)-->(.*?)<!--/n-->", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """What each name stands for."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def kept(file: str) -> dict[str, Any]:
    """A kept result."""
    return json.loads((ROOT / "benchmarks/results" / file).read_text(encoding="utf-8"))


def figure(file: str, method: str, figure: str, **other: Any) -> float:
    """The mean over seeds of a figure of trained models."""
    runs = [one for one in kept(file)["results"] if one["method"] == method]
    values = [one["figures"][figure] for one in runs]
    return sum(values) / len(values)


def formatted(name: str) -> str:
    """The number as it is printed."""
    wanted = definitions()[name]
    if "method" in wanted:
        return format(figure(**wanted), wanted["format"])
    found = {check["name"]: check["value"] for check in kept(wanted["file"])["checks"]}
    value = found[wanted["check"]]
    if "over" in wanted:
        value /= found[wanted["over"]]
    return format(value / wanted.get("unit", 1), wanted["format"])


def filled(text: str) -> str:
    """A page with current numbers."""
    tables = runpy.run_path(str(Path(__file__).with_name("number_tables.py")))["TABLES"]
    text = TABLE.sub(lambda m: f"<!--t:{m[1]}-->\n\n{tables[m[1]](kept)}\n\n<!--/t-->", text)
    return MARK.sub(lambda m: f"<!--n:{m[1]}-->{formatted(m[1])}<!--/n-->", text)


def fill() -> None:
    """Rewrite the pages whose numbers changed."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")
