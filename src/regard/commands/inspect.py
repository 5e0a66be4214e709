"""`regard inspect`: the contents of a bundle, for people or as JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from regard.bundle.bundle import Bundle
from regard.bundle.location import locate
from regard.commands.formats import format_table
from regard.loading import load_pipeline
from regard.native.library import describe_engine
from regard.native.weights_file import read_tensors
from regard.pipeline import Pipeline
from regard.terminal import format_duration
from regard.text.tokenizers import Tokenizer
from regard.training.metric_facts import format_metrics
from regard.training.metrics import legend


def inspect(folder: Path, *, as_json: bool = False) -> None:
    """Print the card, settings, tokenizers, files and parameter counts of a bundle."""
    pipeline = load_pipeline(folder, device="cpu")
    bundle = pipeline.bundle
    files = sorted(path for path in locate(folder).iterdir() if path.is_file())
    facts: dict[str, Any] = {
        "bundle": str(folder),
        "card": bundle.card,
        "model": dict(bundle.raw_settings),
        "engine": describe_choice(pipeline),
        "tokenizers": {
            "source": _tokenizer_facts(bundle.source),
            "target": _tokenizer_facts(bundle.target),
            "shared": bundle.source is bundle.target,
        },
        "files": {path.name: path.stat().st_size for path in files},
        "parameters": count_parameters(bundle),
    }
    print(json.dumps(facts, ensure_ascii=False, indent=2) if as_json else format_facts(facts))


def describe_choice(pipeline: Pipeline) -> str:
    """The engine of this model on a CPU: its kernels, or why it is not the native one."""
    if pipeline.engine == "native":
        return describe_engine()
    return f"{pipeline.engine}, because {pipeline.refused_engines['native']}"


def count_parameters(bundle: Bundle) -> dict[str, int]:
    """The number of parameters of each part; a shared one counts at its first occurrence."""
    if bundle.weights is None:  # in memory
        sizes = {name: weight.numel() for name, weight in bundle.model.named_parameters()}
    else:
        sizes = {name: tensor.size for name, tensor in read_tensors(bundle.weights).items()}
    counts: Counter[str] = Counter()
    for name, size in sizes.items():
        counts[_part_name(name)] += size
    return dict(counts)


def format_facts(facts: dict[str, Any]) -> str:
    """The facts about a bundle as plain text."""
    parameters, tokenizers = facts["parameters"], facts["tokenizers"]
    total = sum(parameters.values())
    lines = [facts["bundle"], "", *_format_card(facts["card"]), "", *_format_model(facts["model"])]
    lines.append(f"engine on a CPU: {facts['engine']}")
    for side in ("source", "target"):
        one = tokenizers[side]
        form = ", decomposed" if one.get("decomposed") else ""
        lines.append(f"{side} tokenizer: {one['kind']}, {one['size']:,} symbols{form}")
    if tokenizers["shared"]:
        lines.append("both sides share one tokenizer")
    rows = [[part, f"{n:,}", f"{100 * n / total:.1f} %"] for part, n in parameters.items()]
    rows.append(["all", f"{total:,}", "100.0 %"])
    files = [[name, f"{size:,}"] for name, size in facts["files"].items()]
    lines += ["", format_table(["parameters", "count", "share"], rows)]
    lines += ["", format_table(["file", "bytes"], files)]
    return "\n".join(lines)


def _format_model(settings: dict[str, Any]) -> list[str]:
    """The settings of a model in one line, or in one for each member of an ensemble."""
    if "members" in settings:
        sides = {"member": settings["members"], "reversed": settings.get("reversed_members", ())}
        numbered = [(f"{name} {i}", one) for name, some in sides.items()
                    for i, one in enumerate(some, 1)]  # fmt: skip
        return [f"{name}: {line}" for name, one in numbered for line in _format_model(one)]
    return ["model: " + ", ".join(f"{name} {value}" for name, value in settings.items())]


def _format_card(card: dict[str, Any]) -> list[str]:
    """One line for each fact on the card."""
    lines = []
    if "task" in card:
        lines.append(f"task: {card['task']}")
    metrics = card.get("metrics", {})
    if numbers := {n: v for n, v in metrics.items() if isinstance(v, int | float)}:
        measured = format_metrics(numbers, card.get("intervals", {}))
        where = f" on {card['held_out']:,} held-out sources" if "held_out" in card else ""
        lines.append(f"metrics: {measured}{where}")
        lines += [f"  {line}" for line in legend(numbers)]
    if "precision" in card:
        lines.append(f"precision of the weights: {card['precision']}")
    if "pairs" in card:
        lines.append(f"trained on: {card['pairs']:,} pairs")
    lines += [f"data: {name}" for name in card.get("data", {}) if "reading" not in name]
    if "steps" in card:
        time = f" in {format_duration(card['seconds'])}" if "seconds" in card else ""
        lines.append(
            f"best model: step {card['steps']:,} of {card.get('of', card['steps']):,}{time}"
        )
    if "longest" in card:
        source, target = (card["longest"].get(side) for side in ("source", "target"))
        lines.append(f"longest in training: source {source}, target {target} tokens")
    if "command" in card:
        lines.append(f"command: {shlex.join(card['command'])}")
    if "versions" in card:
        versions = ", ".join(f"{name} {value}" for name, value in card["versions"].items())
        lines.append(f"versions: {versions}")
    return lines


def _part_name(name: str) -> str:
    """The part that a parameter belongs to; the same parts of all layers are counted together."""
    first, *words = re.sub(r"^(reversed_)?members\.\d+\.", "", name).split(".")
    if first in ("source", "target"):
        return f"{first} embedding"
    if "norm" in name:
        return f"{first.removesuffix('_norm')} norms"
    inner = words[1] if len(words) > 1 and words[0].isdecimal() else ""
    return f"{first} {inner}".replace("_", "-").strip()


def _tokenizer_facts(tokenizer: Tokenizer) -> dict[str, Any]:
    facts = {"kind": tokenizer.kind, "size": len(tokenizer)}
    return {**facts, "decomposed": True} if tokenizer.is_decomposed else facts
