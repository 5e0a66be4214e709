"""The report as one HTML page without external resources: sections in plain language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.bundle import locate
from regard.disk import write_atomically
from regard.ensemble_settings import plain_settings
from regard.reports.charts import alignment_chart, bar_chart, escape, line_chart
from regard.reports.collect import MISSING, ReportData, collect
from regard.reports.confidence import confidence_section
from regard.reports.glossary import (
    GLOSSARY,
    data_warnings,
    explain_quality,
    explain_training,
)
from regard.reports.markup import document, section, table
from regard.terminal import format_duration
from regard.training import metrics
from regard.training.baselines import LABELS, compare_with_baselines

REPORT = "report.html"


def write_report(folder: Path, output: Path | None = None) -> Path:
    """Write the report of a run or a bundle, by default as report.html in its folder."""
    data = collect(folder)
    home = data.pipeline.bundle.folder
    assert home is not None
    if output is None:
        run = home.parent if home.name == "bundle" else Path.cwd()
        output = run / REPORT
    write_atomically(output, build_page(data))
    return output


def build_page(data: ReportData) -> str:
    """The whole page."""
    sections = [
        _summary(data),
        _baselines(data),
        _examples(data),
        _mistakes(data),
        _error_analysis(data),
        confidence_section(data.card),
        _training(data),
        _facts(data),
        _settings(data),
        _usage(data),
        _glossary(data),
    ]
    return document(f"Report: {data.name}", "".join(sections))


def _summary(data: ReportData) -> str:
    card = data.card
    values, intervals = card.get("metrics", {}), card.get("intervals", {})
    tiles = []
    for name, value in values.items():
        if isinstance(value, int | float):
            low, high = intervals.get(name, (None, None))
            between = "" if low is None else f"95 % interval {low:.1f}–{high:.1f}"
            unit = " %" if name.endswith(("rate", "accuracy")) else ""
            tiles.append((metrics.label(name), f"{value:.1f}{unit}", between))
    tiles.append(("parameters", f"{card.get('parameters', 0):,}", "numbers the model learned"))
    if "seconds" in card:
        pairs = f"on {card.get('pairs', 0):,} pairs"
        tiles.append(("training time", format_duration(card["seconds"]), pairs))
    boxes = "".join(
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b>'
        f"<small>{escape(note)}</small></div>"
        for name, value, note in tiles
    )
    verdict = "".join(f"<p>{escape(line)}</p>" for line in explain_quality(card))
    verdict += "".join(f'<p class="warning">{escape(one)}.</p>' for one in data_warnings(card))
    return f'<h1>{escape(data.name)}</h1>{verdict}<div class="tiles">{boxes}</div>'


def _baselines(data: ReportData) -> str:
    card = data.card
    values, scores = card.get("metrics", {}), card.get("baselines", {})
    if not scores:
        return ""
    selected = card.get("settings", {}).get("train", {}).get("select")
    name, value, higher = metrics.primary_metric(values, selected)
    bars = [("this model", value, "model")]
    bars += [(LABELS[key], found[name], "") for key, found in scores.items() if name in found]
    intervals = {key: tuple(pair) for key, pair in card.get("intervals", {}).items()}
    warning = compare_with_baselines(values, intervals, scores, selected)
    better = "longer" if higher else "shorter"
    verdict = f"The model is clearly better than all of them ({better} bars are better)."
    note = f'<p class="warning">Careful: {escape(warning)}.</p>' if warning else f"<p>{verdict}</p>"
    chart = bar_chart(bars, label=f"{metrics.label(name)} of the model and of baselines")
    text = (
        "<p>A model is only useful if it beats programs that anyone could write: repeat the input, "
        "always give the most frequent answer, or look up the most similar training input.</p>"
    )
    heading = f"Is it better than a trivial program? ({metrics.label(name)})"
    return section("baselines", heading, f"{text}{chart}{note}")


def _examples(data: ReportData) -> str:
    rows = data.examples()
    if not rows:
        return ""
    body = [
        [escape(row.source), _mark(row.output, row.correct), escape(row.references[0])]
        for row in rows
    ]
    charts = "".join(_alignment(data, answer) for answer in data.alignments())
    text = (
        "<p>These inputs were held out: the model never saw them in training. They are evenly "
        "spread, not selected.</p>"
    )
    aligned = (
        "<h3>Where the model looked</h3><p>Each row is a piece of the output, each column a piece "
        "of the input. The darker a square, the more attention the model paid to that input when "
        f'it wrote that output.</p><div class="charts">{charts}</div>'
    )
    inside = text + table(["input", "output", "correct answer"], body) + (aligned if charts else "")
    return section("examples", "Examples", inside)


def _alignment(data: ReportData, answer: Any) -> str:
    if answer.alignment is None or not answer.tokens:
        return ""
    source = data.pipeline.bundle.source
    labels = [source.label(id) for id in source.encode(answer.source)]
    chart = alignment_chart(answer.alignment, labels, answer.tokens)
    caption = f"{escape(answer.source)} → {escape(answer.text)}"
    return f'<figure class="scroll"><figcaption>{caption}</figcaption>{chart}</figure>'


def _mistakes(data: ReportData) -> str:
    found = data.mistakes() if data.rows else []
    if not found:
        return ""
    body = [
        [escape(one.source), _mark(one.prediction, False), escape(one.reference), str(one.edits)]
        for one in found
    ]
    text = "<p>The outputs that differ most from the correct answer. Look here for bad data.</p>"
    head = ["input", "output", "correct answer", "edits"]
    return section("mistakes", "Worst mistakes", text + table(head, body, numbers=1))


def _error_analysis(data: ReportData) -> str:
    if not data.rows:
        return ""
    buckets = data.by_length()
    name, _, _ = metrics.primary_metric(data.card["metrics"])
    bars = [(f"{_range(part)} ({part['count']:,})", part[name], "model") for part in buckets]
    chart = bar_chart(bars, label=f"{metrics.label(name)} by length of the input")
    unit = "words" if data.task == "text" else data.task
    rows = [
        [_symbol(one.expected), _symbol(one.output), f"{one.count:,}"] for one in data.confusions()
    ]
    lengths = f"<h3>By length of the input</h3><p>{metrics.label(name).capitalize()} by tokens of "
    lengths += "the input; the number of inputs is in parentheses.</p>"
    confused = f"<h3>Confused {unit}</h3><p>What the model wrote instead, and how often.</p>"
    confusions = table([f"correct {unit}", "written", "times"], rows, numbers=1) if rows else ""
    inside = lengths + chart + (confused + confusions if rows else "")
    return section("errors", "Where it makes mistakes", inside)


def _training(data: ReportData) -> str:
    parts = [f"<p>{escape(line)}</p>" for line in explain_training(data)]
    if len(data.losses) > 1:
        parts.append("<h3>Loss on the training data</h3>")
        parts.append(line_chart(data.losses, x="steps", y="loss"))
    if len(data.evaluations) > 1:
        selected = data.card.get("settings", {}).get("train", {}).get("select")
        last = data.evaluations[-1]["metrics"]
        name, _, _ = metrics.primary_metric(last, selected)
        points = [(event["step"], event["metrics"][name]) for event in data.evaluations]
        bands = [event.get("intervals", {}).get(name) for event in data.evaluations]
        band = [(pair[0], pair[1]) for pair in bands if pair] if all(bands) else []
        label = metrics.label(name)
        parts.append(f"<h3>{label.capitalize()} on the held-out set</h3>")
        parts.append(line_chart(points, x="steps", y=label, band=band))
    return section("training", "How training went", "".join(parts)) if len(parts) > 1 else ""


def _facts(data: ReportData) -> str:
    card = data.card
    files = [f"{name}: {value[:12]}…" for name, value in card.get("data", {}).items()]
    rows = [
        ["pairs for training", f"{card.get('pairs', 0):,}"],
        ["held-out inputs", f"{card.get('held_out', 0):,}"],
        ["longest input and output", _longest(card)],
        *(["file (sha256)", name] for name in files if "reading" not in name),
    ]
    cells = [[escape(cell) for cell in row] for row in rows]
    notes = "".join(f"<li>{escape(line)}</li>" for line in card.get("decisions", []))
    listed = f"<h3>How the data were read</h3><ul>{notes}</ul>" if notes else ""
    return section("data", "Data", table(["", ""], cells) + listed)


def _settings(data: ReportData) -> str:
    model = plain_settings(data.pipeline.bundle.settings)
    groups = {"model": model, **data.card.get("settings", {})}
    rows = [
        [escape(f"{group}.{name}"), escape("default" if value is None else value)]
        for group, values in groups.items()
        for name, value in values.items()
    ]
    inside = table(["setting", "value"], rows)
    return section(
        "settings", "Settings", f"<details><summary>All settings</summary>{inside}</details>"
    )


def _usage(data: ReportData) -> str:
    card = data.card
    home = data.pipeline.bundle.folder
    assert home is not None
    example = data.rows[0].source if data.rows else card.get("example", "text")
    size = sum(path.stat().st_size for path in locate(home).iterdir()) / 1e6
    commands = [
        ("Answer a text", f'regard predict {home} "{example}"'),
        ("Answer each line of a file", f"regard predict {home} --input lines.txt --output out.txt"),
        (
            "From Python",
            f'import regard\npipeline = regard.load("{home}")\nprint(pipeline("{example}"))',
        ),
        ("Evaluate on other pairs", f"regard evaluate {home} test.tsv"),
        ("See inside the model", f"regard explore {home}"),
        ("Train further", f"regard train … --out {home.parent} --extend --minutes 10"),
    ]
    blocks = "".join(
        f"<h3>{escape(title)}</h3><pre><code>{escape(command)}</code></pre>"
        for title, command in commands
    )
    share = (
        f"<p>The model is the folder <code>{escape(home)}</code> ({size:.1f} MB). To share it, "
        "pass on the whole folder; it contains no code.</p>"
    )
    return section("use", "Use and share", share + blocks)


def _glossary(data: ReportData) -> str:
    words = {
        info.label: info.meaning
        for name, info in metrics.METRICS.items()
        if name in data.card.get("metrics", {})
    }
    items = {**words, **GLOSSARY}
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in items.items())
    return section("glossary", "Words used here", f"<dl>{rows}</dl>")


def _mark(text: str, correct: bool) -> str:
    """An output with a mark that does not rely on colour."""
    kind, sign = ("right", "✓") if correct else ("wrong", "✗")
    return f'<span class="{kind}"><span aria-hidden="true">{sign}</span> {escape(text)}</span>'


def _symbol(symbol: str) -> str:
    return "<i>nothing</i>" if symbol == MISSING else f"<code>{escape(symbol)}</code>"


def _range(part: dict[str, Any]) -> str:
    least, most = part["least"], part["most"]
    return f"{least}+" if most is None else f"{least}" if least == most else f"{least}–{most}"


def _longest(card: dict[str, Any]) -> str:
    longest = card.get("longest", {})
    return f"{longest.get('source', '?')} and {longest.get('target', '?')} tokens"
