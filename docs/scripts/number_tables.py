"""Whole tables of figures for the pages, from kept results; see page_numbers.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Kept = Callable[[str], dict[str, Any]]  # reads a kept result by the name of its file
Table = Callable[[Kept], str]  # a table in Markdown


def checks(kept: dict[str, Any]) -> Mapping[str, float]:
    """The values of a kept result, by the names of its checks."""
    return {check["name"]: check["value"] for check in kept["checks"]}


def rate(value: float) -> str:
    """A rate with three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def native(file: str) -> Table:
    """The native engine and CTranslate2, from one result."""

    def table(kept: Kept) -> str:
        found = checks(kept(file))
        columns = "int8, tokens/s", "over CTranslate2", "float32, tokens/s", "over CTranslate2"
        return markdown(["", *columns], list(_native_rows(found)))

    return table


def _native_rows(found: Mapping[str, float]) -> Iterator[list[str]]:
    for size in ("small", "base"):
        for sources, words in (("1 source", "one source"), ("64 sources", "64 sources")):
            case = [f"{size}, {sources}, beam {beam}" for beam in (1, 4)]
            row = [f"{size}, {words}, greedy / beam 4"]
            for precision in ("int8", "float32"):
                rates = [found[f"{one}: native {precision}, tokens/s"] for one in case]
                gains = [found[f"{one}: speedup, {precision}"] for one in case]
                row.append(" / ".join(map(rate, rates)))
                row.append(" / ".join(f"{gain:.3g} ×" for gain in gains))
            yield row


def compression(kept: Kept) -> str:
    """Teachers, students and int8 copies."""
    found = checks(kept("compression-x86.json"))
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


def fine_tuning(kept: Kept) -> str:
    """An imported model, trained and fine-tuned."""
    found = checks(kept("fine_tuning-h200.json"))
    rows = {
        "trained on Tatoeba, not fine-tuned": "trained on Tatoeba",
        "fine-tuned with the defaults (10 epochs)": "fine-tuned with the defaults",
        "trained on Multi30k only, 60 epochs": "trained on Multi30k",
        "fine-tuned with those same settings": "fine-tuned with the settings of Multi30k",
    }
    lines = [[words, f"{found[f'Multi30k test, {key}: BLEU']:.1f}"] for words, key in rows.items()]
    return markdown(["", "BLEU"], lines)


SETS = [  # set, figure, its name, decimals, published figures
    ("cmudict", "test wer", "word error rate, %", 2,
     "one model 20.6 to 22.1; ensemble of five 20.24; distilled, with extra words 19.88"),
    ("cmudict", "test per", "phone error rate, %", 2, "5.23; 4.69; 4.6"),
    ("multi30k-en-de-tok", "2016 bleu", "BLEU 2016", 2, "Transformer-Tiny 41.02"),
    ("multi30k-en-de-tok", "2017 bleu", "BLEU 2017", 2, "33.36"),
    ("multi30k-en-de-tok", "coco bleu", "BLEU coco", 2, "29.88"),
    ("multi30k-en-de-raw", "2016 bleu", "BLEU 2016", 2,
     "OPUS-MT (general, not trained for captions) 36.3"),
    ("multi30k-en-de-raw", "2017 bleu", "BLEU 2017", 2, "35.8"),
    ("multi30k-en-de-raw", "coco bleu", "BLEU coco", 2, ""),
    ("tatoeba-en-de", "test bleu", "BLEU", 2, "OPUS-MT, 100 M+ pairs, 46.7"),
    ("names-ru", "test 1-best", "accuracy, first output", 3, "0.60"),
    ("names-ru", "test 3-best", "accuracy, first three", 3, "0.75"),
    ("inflection-2017", "test accuracy", "accuracy, %", 2, "95.32"),
    ("scan-length", "test exact", "exact match, %", 2, "plain Transformer 0"),
    ("scan-length-26", "test exact", "exact match, %", 2, "relative positions 100"),
    ("scan-around-right", "test exact", "exact match, %", 2, "plain Transformer 53.3"),
]  # fmt: skip
METHODS = ("recipe", "recipe, ensemble of 3", "auto")


def by_method(kept: dict[str, Any], method: str) -> list[dict[str, Any]]:
    """The trainings of one method, one per seed."""
    return [one for one in kept["results"] if one["method"] == method]


def spread(values: list[float], digits: int) -> str:
    """Mean ± standard deviation over seeds; a single value alone; nothing without one."""
    if not values:
        return ""
    mean = f"{sum(values) / len(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def quality(kept: Kept) -> str:
    """Figures on public test sets."""
    head = ["set", "figure", "Regard, one model", "ensemble of three", "`auto`", "published"]
    rows, last = [], ""
    for name, figure, words, digits, published in SETS:
        found = kept(f"quality-{name}.json")
        cells = [
            spread([one["figures"][figure] for one in by_method(found, method)], digits)
            for method in METHODS
        ]
        rows.append([f"`{name}`" if name != last else "", words, *cells, published])
        last = name
    return markdown(head, rows)


def sizes(kept: Kept) -> str:
    """Parameters, steps and times of the trainings."""
    rows = []
    for name in dict.fromkeys(one[0] for one in SETS):
        row = [f"`{name}`"]
        for method in ("recipe", "auto"):
            runs = by_method(kept(f"quality-{name}.json"), method)
            times = sorted({round(run["trained_seconds"]) for run in runs})
            seconds = f"{times[0]} to {times[-1]}" if len(times) > 1 else f"{times[0]}"
            size, steps = runs[0]["parameters"] / 1e6, runs[0]["planned_steps"]
            row.append(f"{size:.1f} M, {steps:,}, {seconds}")
        rows.append(row)
    return markdown(["set", "recipe: parameters, steps, seconds", "`auto`"], rows)


def gpu_decoding(kept: Kept) -> str:
    """Decoding on a GPU beside Hugging Face."""
    found = checks(kept("gpu_decoding-h200.json"))
    rows = []
    for count in (1, 8, 64, 512):
        for precision in ("bfloat16", "float32"):
            row = [f"{count}, {precision}"]
            for search in ("greedy", "beam 5"):
                case = f"{count} × {search}, {precision}"
                gain = found[f"{case}: over HF"]
                row.append(f"{rate(found[f'{case}: tokens/s'])}, {gain:.3g} × HF")
            rows.append(row)
    return markdown(["concurrent sentences", "greedy, tokens/s", "beam 5, tokens/s"], rows)


SMALL = [
    ("g2p-2020", "`g2p-2020`, 15 languages, 3,600 words each", "word error rate, %",
     "neural baselines 16.8, best system 13.8"),
    ("inflection-2017-medium", "`inflection-2017`, 1,000 forms per language", "accuracy, %",
     "best system 82.8"),
    ("inflection-2017-low", "`inflection-2017`, 100 forms per language", "accuracy, %",
     "best system 50.6"),
]  # fmt: skip


def small_data(kept: Kept) -> str:
    """Figures of the defaults on small data: one model, and the ensemble if there is one."""
    rows = []
    for name, words, figure, published in SMALL:
        found = checks(kept(f"defaults-{name}.json"))
        one, *both = (
            value for key, value in found.items() if key.startswith(f"{name}: error rate")
        )
        if figure.startswith("accuracy"):
            one = 100 - one
        deviation = found[f"{name}: standard deviation over seeds"]
        cells = [f"{one:.2f} ± {deviation:.2f}", *(f"{value:.2f}" for value in both)]
        rows.append([words, figure, *cells, *[""] * (2 - len(cells)), published])
    return markdown(["set", "figure", "Regard, one model", "`--seeds 5`", "published"], rows)


def slices(kept: Kept) -> str:
    """Dictionary slices with the earlier defaults and with the present ones."""
    found: dict[str, dict[int, list[float]]] = {}
    for one in kept("defaults-cmudict-slices.json")["results"]:
        sizes = found.setdefault(one["set"], {})
        sizes.setdefault(int(one["group"]), []).append(one["error_rate"])
    rows = []
    for count, rates in sorted(found["cmudict-slices"].items()):
        earlier = spread(found["cmudict-slices-before"].get(count, []), 1)
        rows.append([f"{count:,}", earlier, spread(rates, 1)])
    return markdown(["words", "earlier defaults", "defaults"], rows)


LAPTOP = {
    "dictionary": "`cmudict`, word error rate, %",
    "names": "`names-ru`, word error rate, %",
    "multi30k": "`multi30k-en-de-raw`, BLEU 2016",
}


def laptop(kept: Kept) -> str:
    """Figures of the defaults after some minutes on two cores."""
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for one in kept("laptop-x86.json")["results"]:
        groups.setdefault((one["set"], one["minutes"]), []).append(one)
    rows = []
    for name, words in LAPTOP.items():
        for (of, minutes), runs in sorted(groups.items()):
            if of == name:
                shares = sorted(round(one["core_share"]) for one in runs)
                share = f"{shares[0]} to {shares[-1]}" if len(shares) > 1 else f"{shares[0]}"
                figure = spread([one["value"] for one in runs], 1)
                rows.append([words, f"{minutes:g}", figure, str(len(runs)), share])
    return markdown(["", "minutes", "on test", "seeds", "share of the cores, %"], rows)


TABLES: dict[str, Table] = {
    "native": native("native-x86.json"),
    "native_two_cores": native("native_two_cores-x86.json"),
    "native_arm": native("native-arm.json"),
    "compression": compression,
    "fine_tuning": fine_tuning,
    "gpu_decoding": gpu_decoding,
    "quality": quality,
    "sizes": sizes,
    "small_data": small_data,
    "slices": slices,
    "laptop": laptop,
}
