"""Inspect: what a bundle is made of; what `regard inspect` does."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from regard.bundle import locate
from regard.commands.loading import opened
from regard.commands.text_table import table
from regard.models import Model
from regard.terminal import format_duration, format_number
from regard.text import Tokenizer


def inspect(folder: Path, *, as_json: bool = False) -> None:
    """Print the card, the settings, the tokenisers, the files and where the parameters are."""
    made = opened(folder, device="cpu").bundle
    facts: dict[str, Any] = {
        "bundle": str(folder),
        "card": made.card,
        "model": made.settings.model_dump(mode="json"),
        "tokenizers": {"source": _tokenizer(made.source), "target": _tokenizer(made.target)},
        "files": {path.name: path.stat().st_size for path in sorted(locate(folder).iterdir()) if path.is_file()},
        "parameters": parameters(made.model),
    }
    facts["tokenizers"]["shared"] = made.source is made.target
    print(json.dumps(facts, ensure_ascii=False, indent=2) if as_json else told(facts))


def parameters(model: Model) -> dict[str, int]:
    """How many parameters each part has; what is shared counts where it comes first."""
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[_part(name)] += parameter.numel()
    return dict(counts)


def told(facts: dict[str, Any]) -> str:
    """The same for people."""
    card, whole = facts["card"], sum(facts["parameters"].values())
    sizes = facts["tokenizers"]
    lines = [facts["bundle"], "", *_card(card)]
    lines += ["", "model: " + ", ".join(f"{name} {value}" for name, value in facts["model"].items())]
    for side in ("source", "target"):
        lines.append(f"{side} tokeniser: {sizes[side]['kind']}, {sizes[side]['size']:,} symbols")
    if sizes["shared"]:
        lines.append("one tokeniser serves both sides")
    rows = [[part, f"{count:,}", f"{100 * count / whole:.1f} %"] for part, count in facts["parameters"].items()]
    rows.append(["all", f"{whole:,}", "100.0 %"])
    lines += ["", table(["parameters", "count", "share"], rows)]
    lines += ["", table(["file", "bytes"], [[name, f"{size:,}"] for name, size in facts["files"].items()])]
    return "\n".join(lines)


def _card(card: dict[str, Any]) -> list[str]:
    """What the card says, a line for each fact it has."""
    lines = []
    if "task" in card:
        lines.append(f"task: {card['task']}")
    numbers = {n: v for n, v in card.get("metrics", {}).items() if isinstance(v, int | float)}
    if numbers:
        measured = ", ".join(f"{name} {format_number(value)}" for name, value in numbers.items())
        asked = f" on {card['held_out']:,} held-out questions" if "held_out" in card else ""
        lines.append(f"measured: {measured}{asked}")
    if "pairs" in card:
        lines.append(f"learned from: {card['pairs']:,} pairs")
    lines += [f"data: {name}" for name in card.get("data", {}) if "reading" not in name]
    if "steps" in card:
        took = f" in {format_duration(card['seconds'])}" if "seconds" in card else ""
        lines.append(f"steps: {card['steps']:,} of {card.get('of', card['steps']):,}{took}")
    if "longest" in card:
        longest = card["longest"]
        lines.append(f"longest seen: source {longest.get('source')}, target {longest.get('target')} tokens")
    if "command" in card:
        lines.append(f"command: {shlex.join(card['command'])}")
    if "versions" in card:
        lines.append("versions: " + ", ".join(f"{name} {value}" for name, value in card["versions"].items()))
    return lines


def _part(name: str) -> str:
    """The part that a parameter belongs to: in a stack of layers, the same part of all of them."""
    first, *words = name.split(".")
    if first in ("source", "target"):
        return f"{first} embedding"
    if "norm" in name:
        return f"{first.removesuffix('_norm')} norms"
    inner = words[1] if len(words) > 1 and words[0].isdecimal() else ""
    return f"{first} {inner}".replace("_", "-").strip()


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    return {"kind": tokenizer.kind, "size": len(tokenizer)}
