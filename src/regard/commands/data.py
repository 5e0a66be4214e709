"""`regard data`: what would be trained on, with samples, before any training."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice
from typing import Any

from regard.commands.formats import format_table
from regard.text import Corpus, PairChecks
from regard.text.data_checks import DESCRIPTIONS, DataReport

SHOWN_PAIRS = 3


def describe_data(corpus: Corpus, held_out: Corpus | None = None, *, as_json: bool = False) -> None:
    """Check all pairs of a corpus and print the report."""
    checks = PairChecks(held_out or ())
    reader = corpus.read()
    for pair in reader:
        checks.add(pair)
    found = checks.report()
    facts: dict[str, Any] = {
        "files": corpus.decisions,
        "bad_lines": dict(reader.problems),
        "first_pairs": [list(pair) for pair in islice(corpus, SHOWN_PAIRS)],
        **asdict(found),
    }
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    lines = [*corpus.decisions, f"{found.pairs:,} pairs"]
    lines += [reader.summary()] if reader.problems else []
    lines += ["", "First pairs", *(f"  {_pair(*pair)}" for pair in facts["first_pairs"]), ""]
    print("\n".join([*lines, format_sides(found), *format_findings(found)]))


def format_sides(found: DataReport) -> str:
    """Lengths and scripts of both sides, as a table."""
    head = ["", "shortest", "median", "longest", "words", "different characters", "scripts"]
    rows = [
        [
            side,
            f"{one.shortest:,}",
            f"{one.median:,g}",
            f"{one.longest:,}",
            f"{one.words:,g}",
            f"{one.characters:,}",
            ", ".join(f"{name} {100 * share:.1f} %" for name, share in one.scripts.items()),
        ]
        for side, one in found.sides.items()
    ]
    return "Lengths in characters, median number of words\n" + format_table(head, rows)


def format_findings(found: DataReport) -> list[str]:
    """Each finding with its count, share and examples."""
    lines = [""]
    for kind, description in DESCRIPTIONS.items():
        count = found.counts.get(kind, 0)
        if not count:
            continue
        lines.append(f"{count:,} {description} ({100 * count / found.checked:.1f} %)")
        lines += [f"  {_pair(*pair)}" for pair in found.examples[kind]]
    for side, share in found.coverage.items():
        lines.append(f"{100 * share:.1f} % of the held-out {side} words occur in the training data")
    return lines if len(lines) > 1 else ["", "Nothing unusual was found."]


def _pair(source: str, target: str) -> str:
    return f"{_shorten(source)} → {_shorten(target)}"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 50 else text[:49] + "…")
