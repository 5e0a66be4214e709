"""The model card in prose: README.md of a bundle, written from its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MEANINGS = {
    "accuracy": "percent of outputs that are exactly right; higher is better",
    "error_rate": "percent; lower is better",
    "bleu": "overlap of word sequences with the references, 0 to 100; higher is better",
    "chrf": "overlap of character sequences with the references, 0 to 100; higher is better",
}
FILES = """\
| file | contents |
|---|---|
| `weights.safetensors` | the parameters |
| `config.json` | the settings of the model |
| `*.tokenizer.json` | the tokenizers, in the format of the library `tokenizers` |
| `card.json` | the facts of this page, and all settings of the training |
| `manifest.json` | size and checksum of every file |
"""


def write_model_card(card: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The README.md of a bundle, in Markdown."""
    kind = str(settings.get("kind", "transformer"))
    article = f"a {kind} encoder–decoder" if kind == "recurrent" else "a Transformer"
    if kind == "ensemble":
        reverse = settings.get("reversed_members", ())
        count = len(settings["members"]) + len(reverse)
        article = f"an ensemble of {count} models, whose probabilities it averages,"
        if reverse:
            article += f" {len(reverse)} of which generate a target from its end,"
    size = f" with {card['parameters']:,} parameters" if "parameters" in card else ""
    made = "trained with Regard"
    if "import" in card:
        original = f"imported from the Hugging Face model {_escape(str(card['import']['model']))}"
        made = f"{original} and fine-tuned with Regard" if "pairs" in card else original
    about = (
        f"This model turns one text into another. It is {article}{size}, {made}. Loading it runs "
        "no code from this folder."
    )
    if "distillation" in card:
        about += (
            " It is a student: it was trained on the outputs of another model (sequence-level "
            "distillation)."
        )
    sections = {
        "": about,
        "How to use it": _use(card),
        "Data": _data(card),
        "Quality": "".join(part(card) for part in PARTS),
        "Limits": _limits(card),
        "Files": FILES.rstrip(),
    }
    parts = [f"## {title}\n\n{text}" if title else text for title, text in sections.items()]
    return "# Model card\n\n" + "\n\n".join(parts) + "\n"


def _use(card: Mapping[str, Any]) -> str:
    sample = next(iter(card.get("samples", [])), None)
    text = str(sample[0]) if sample else "a text"
    code = text.replace("\\", "\\\\").replace('"', '\\"').replace("`", "'").replace("\n", " ")
    return (
        "```sh\nregard predict THIS_FOLDER --input texts.txt --output answers.txt\n"
        "regard explore THIS_FOLDER    # every number of the model, in the browser\n```\n\n"
        f'```python\nimport regard\n\nmodel = regard.load("THIS_FOLDER")\nprint(model("{code}"))\n'
        "```"
    )


def _data(card: Mapping[str, Any]) -> str:
    lines = []
    files = [
        name
        for name in card.get("data", {})
        if not name.startswith("held out") and name != "reading"
    ]
    if "pairs" in card:
        where = f" from {', '.join(f'`{name}`' for name in files)}" if files else ""
        lines.append(f"It was trained on {card['pairs']:,} pairs of source and target{where}.")
    if "attribution" in card:
        lines.append(f"Source of the data: {_escape(card['attribution'])}.")
    if "held_out" in card:
        lines.append(
            f"{card['held_out']:,} other sources were held out to measure its quality; it was not "
            "trained on them."
        )
    decisions = [f"- {_escape(text)}" for text in card.get("decisions", [])]
    if decisions:
        lines.append("\n\nHow the data were read and the settings chosen:\n\n")
        lines.append("\n".join(decisions))
    return " ".join(lines).replace(" \n\n", "\n\n").replace("\n\n ", "\n\n") or "Not recorded."


def _quality(card: Mapping[str, Any]) -> str:
    metrics = {n: v for n, v in card.get("metrics", {}).items() if isinstance(v, int | float)}
    if not metrics:
        return "Not measured."
    intervals, baselines = card.get("intervals", {}), card.get("baselines") or {}
    names = [name for name in baselines if isinstance(baselines[name], Mapping)]
    head = [
        "metric",
        "this model",
        "95 % interval",
        *(f"baseline: {name.replace('_', ' ')}" for name in names),
    ]
    rows = [head, ["---"] * len(head)]
    for name, value in metrics.items():
        low_high = intervals.get(name)
        interval = f"{low_high[0]:.1f} – {low_high[1]:.1f}" if low_high else "–"
        others = [_number(baselines[one].get(name)) for one in names]
        rows.append([name.replace("_", " "), _number(value), interval, *others])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    legend = [
        f"- {name.replace('_', ' ')}: {meaning}"
        for name in metrics
        for ending, meaning in MEANINGS.items()
        if name.endswith(ending)
    ]
    text = "Measured on the held-out sources:\n\n" + "\n".join(lines)
    if legend:
        text += "\n\n" + "\n".join(legend)
    return text + _samples(card.get("samples", []))


def _import(card: Mapping[str, Any]) -> str:
    """How an import was verified."""
    facts = card.get("import", {})
    if "largest_difference" not in facts:
        return f"\n\nCheck of the import: {facts['check']}." if facts else ""
    return (
        f"\n\nThe import was compared with {facts['check']} on {facts['texts']} texts: outputs are "
        f"equal, and logits differ by at most {facts['largest_difference']:.1e}."
    )


def _distillation(card: Mapping[str, Any]) -> str:
    """Teacher and student side by side."""
    if "distillation" not in card:
        return ""
    facts = card["distillation"]
    rows = [["", "teacher", "student"], ["---"] * 3]
    sides = facts["teacher"], facts["student"]
    for name in sides[0]["metrics"]:
        cells = (_number(side["metrics"].get(name)) for side in sides)
        rows.append([name.replace("_", " "), *cells])
    rows.append(["sources/s", *(f"{side['sources_per_second']:,.0f}" for side in sides)])
    rows.append(["parameters", *(f"{side['parameters']:,}" for side in sides)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    intro = f"Compared with its teacher on the held-out sources ({facts['device']}):"
    return f"\n\n{intro}\n\n" + "\n".join(lines)


def _quantization(card: Mapping[str, Any]) -> str:
    """Size and quality in float32 and in int8."""
    if "quantization" not in card:
        return ""
    facts = card["quantization"]
    before, after = facts["bytes"]["float32"], facts["bytes"]["int8"]
    rows = [["", "float32", "int8"], ["---"] * 3]
    rows.append(["weights (bytes)", f"{before:,}", f"{after:,}"])
    for name in facts["float32"]:
        cells = (_number(facts[kind].get(name)) for kind in ("float32", "int8"))
        rows.append([name.replace("_", " "), *cells])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    intro = (
        "The weights are stored in int8, with a scale for each output channel: "
        f"{before / after:.1f} × smaller than in float32. Outputs differ from those in float32 for "
        f"{facts['changed_outputs']:,} of {facts['held_out']:,} held-out sources (engine: "
        f"{facts['engine']}):"
    )
    return f"\n\n{intro}\n\n" + "\n".join(lines)


def _calibration(card: Mapping[str, Any]) -> str:
    """What the confidence of an output means."""
    meaning = "The confidence of an output is the probability that it equals a reference"
    found = card.get("calibration")
    if found is None:
        return ""
    if "errors" not in found:
        why = f" ({_escape(str(found['reason']))})" if "reason" in found else ""
        return f"\n\n{meaning}. It is the model's own probability and was not calibrated{why}."
    errors = found["errors"]
    return (
        f"\n\n{meaning}. It was calibrated on {found['outputs']:,} held-out outputs (method: "
        f"{_escape(str(found['method']))}). Its expected calibration error is "
        f"{errors['after']:.1f} points; that of the model's own probability is "
        f"{errors['before']:.1f}."
    )


def _samples(samples: Sequence[Sequence[str]]) -> str:
    rows = [sample for sample in samples if len(sample) == 3][:5]
    if not rows:
        return ""
    lines = ["| source | output | expected |", "| --- | --- | --- |"]
    lines += ["| " + " | ".join(_escape(str(cell)) for cell in row) + " |" for row in rows]
    return "\n\nExamples:\n\n" + "\n".join(lines)


PARTS = (_quality, _calibration, _import, _distillation, _quantization)


def _limits(card: Mapping[str, Any]) -> str:
    lines = ["The model knows only texts like its training data; on other texts its outputs may be"]
    lines.append("wrong without any sign of it.")
    source = card.get("input", {}).get("source", {})
    if source.get("case") in ("lower", "upper"):
        lines.append(f"Sources are written in {source['case']} case.")
    longest = card.get("longest", {}).get("source")
    if longest and "import" in card and "pairs" not in card:
        lines.append(f"A source may have up to {longest:,} tokens.")
    elif longest:
        lines.append(f"The longest source in training had {longest:,} tokens.")
    return " ".join(lines)


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else "–"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
