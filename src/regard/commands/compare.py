"""`regard compare`: runs side by side, with the significance of their differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.bundle import locate
from regard.commands.formats import format_table
from regard.ensemble_settings import plain_settings
from regard.errors import RegardError
from regard.loading import load_pipeline
from regard.model_location import find_model
from regard.pipeline import Pipeline
from regard.quality import References, evaluate_pipeline
from regard.reports.collect import read_outputs
from regard.training import metrics
from regard.training.bootstrap import paired_difference


@dataclass(frozen=True)
class ComparedRun:
    """A run in a comparison. `p` is of the difference from the first run (None for the first)."""

    name: str
    settings: dict[str, Any]
    metrics: dict[str, float]
    difference: float | None
    p: float | None
    sources_per_second: float
    parameters: int
    megabytes: float


def compare(folders: Sequence[Path], *, as_json: bool = False) -> None:
    """Print the comparison of at least two runs or bundles."""
    if len(folders) < 2:
        raise RegardError(f"compare needs at least two runs; got {len(folders)}")
    pipelines = [load_pipeline(find_model(folder)) for folder in folders]
    task, references = _held_out(folders[0], pipelines[0])
    outputs, compared = [], []
    for folder, pipeline in zip(folders, pipelines, strict=True):
        found = evaluate_pipeline(pipeline, references)
        outputs.append(list(found.predictions.values()))
        difference, p = None, None
        if len(outputs) > 1:
            right = list(references.values())
            difference, p = paired_difference(task, outputs[0], outputs[-1], right)
        home = locate(find_model(folder))
        compared.append(
            ComparedRun(
                name=str(folder),
                settings=_settings(pipeline),
                metrics={name: one["value"] for name, one in found.metrics.items()},
                difference=difference,
                p=p,
                sources_per_second=found.per_second,
                parameters=sum(one.numel() for one in pipeline.model.parameters()),
                megabytes=sum(path.stat().st_size for path in home.iterdir()) / 1e6,
            )
        )
    if as_json:
        print(json.dumps([vars(one) for one in compared], ensure_ascii=False))
    else:
        print(format_comparison(compared, len(references)))


def format_comparison(runs: Sequence[ComparedRun], sources: int) -> str:
    """The comparison as plain-text tables."""
    names = list(runs[0].metrics)
    primary = metrics.label(metrics.primary_metric(runs[0].metrics)[0])
    rows = [
        [
            run.name,
            *(f"{run.metrics[name]:.2f}" for name in names),
            "" if run.difference is None else f"{run.difference:+.2f}",
            "" if run.p is None else f"{run.p:.3f}",
            f"{run.sources_per_second:,.0f}",
            f"{run.parameters:,}",
            f"{run.megabytes:.1f}",
        ]
        for run in runs
    ]
    labels = [metrics.label(name) for name in names]
    head = ["run", *labels, "difference", "p", "sources/s", "parameters", "MB"]
    legend = [f"  {line}" for line in metrics.legend(names)]
    legend.append(
        f"  difference: of the {primary} from the first run; p: its two-sided paired-bootstrap "
        "p-value (< 0.05 is significant)"
    )
    lines = [f"{sources:,} held-out sources", "", format_table(head, rows), "", *legend]
    differing = differing_settings([run.settings for run in runs])
    if differing:
        table = [[name, *values] for name, values in differing.items()]
        heads = ["setting", *(run.name for run in runs)]
        lines += ["", "Settings that differ", format_table(heads, table, left=len(heads))]
    return "\n".join(lines)


def differing_settings(settings: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The settings that are not the same in all runs, as text."""
    names = dict.fromkeys(name for one in settings for name in one)
    rows = {name: [str(one.get(name, "")) for one in settings] for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _settings(pipeline: Pipeline) -> dict[str, Any]:
    groups = {"model": plain_settings(pipeline.bundle.settings)}
    groups |= pipeline.bundle.card.get("settings", {})
    return {f"{group}.{name}": v for group, values in groups.items() for name, v in values.items()}


def _held_out(folder: Path, pipeline: Pipeline) -> tuple[str, References]:
    """The task and the held-out set of a run."""
    home = find_model(folder)
    rows = read_outputs((home.parent if home.name == "bundle" else home) / "held_out.jsonl")
    if not rows:
        raise RegardError(
            f"{str(folder)!r} has no held-out set (held_out.jsonl); give the folder of a run first"
        )
    references = {row.source: row.references for row in rows}
    return str(pipeline.bundle.card["task"]), references
