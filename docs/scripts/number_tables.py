"""Whole tables of figures for the pages, from kept results; see page_numbers.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Checks = Callable[[str], Mapping[str, float]]


def rate(value: float) -> str:
    """A rate with three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def native(checks: Checks) -> str:
    """The native engine and CTranslate2."""
    found = checks("native-x86.json")
    head = ["", *("int8, tokens/s", "over CTranslate2", "float32, tokens/s", "over CTranslate2")]
    rows = []
    for size in ("small", "base"):
        for sources, words in (("1 source", "one source"), ("64 sources", "64 sources")):
            case = [f"{size}, {sources}, beam {beam}" for beam in (1, 4)]
            row = [f"{size}, {words}, greedy / beam 4"]
            for precision in ("int8", "float32"):
                rates = [found[f"{one}: native {precision}, tokens/s"] for one in case]
                gains = [found[f"{one}: speedup, {precision}"] for one in case]
                row.append(" / ".join(map(rate, rates)))
                row.append(" / ".join(f"{gain:.2g} ×" for gain in gains))
            rows.append(row)
    return markdown(head, rows)


def compression(checks: Checks) -> str:
    """Teachers, students and int8 copies."""
    found = checks("compression-x86.json")
    head = ["", "teacher", "student", "int8", "sources/s, teacher → student"]
    rows = []
    for name, metric, words, digits in (
        ("multi30k", "BLEU", "Multi30k en–de, mean BLEU of three test sets", 1),
        ("cmudict", "sequence error rate", "CMUdict, word error rate, %", 2),
    ):
        models = ("teacher", "student", "int8")
        quality = [f"{found[f'{name}, {model}: {metric} on test']:.{digits}f}" for model in models]
        one = f"{name}, one source"
        speeds = " → ".join(f"{found[f'{one}, {m}: sources/s']:.1f}" for m in models[:2])
        gain = found[f"{one}: student over teacher"]
        rows.append([words, *quality, f"{speeds} ({gain:.1f} ×)"])
    return markdown(head, rows)


def fine_tuning(checks: Checks) -> str:
    """An imported model, trained and fine-tuned."""
    found = checks("fine_tuning-h200.json")
    rows = {
        "trained on Tatoeba, not fine-tuned": "trained on Tatoeba",
        "fine-tuned with the defaults (10 epochs)": "fine-tuned with the defaults",
        "trained on Multi30k only, 60 epochs": "trained on Multi30k",
        "fine-tuned with those same settings": "fine-tuned with the settings of Multi30k",
    }
    lines = [[words, f"{found[f'Multi30k test, {key}: BLEU']:.1f}"] for words, key in rows.items()]
    return markdown(["", "BLEU"], lines)


TABLES: dict[str, Callable[[Checks], str]] = {
    "native": native,
    "compression": compression,
    "fine_tuning": fine_tuning,
}
