"""`regard train --seeds N`: the metrics of each seed, their mean ± spread, and the ensemble's."""

from __future__ import annotations

from regard.commands.formats import format_table
from regard.seeds import SeedsResult
from regard.training import metrics


def format_seeds(result: SeedsResult) -> str:
    """The result as a plain-text table with a legend."""
    found, summary = result.metrics(), result.summary()
    names = list(summary)
    rows = [
        [f"seed {number}", *(f"{one[name]:.2f}" for name in names)]
        for number, one in enumerate(found, 1)
    ]
    for pipeline, row in zip(result.pipelines, rows, strict=True):
        row[0] = f"seed {pipeline.bundle.card['settings']['train']['seed']}"
    rows.append(["mean ± spread", *(f"{mean:.2f} ± {std:.2f}" for mean, std in summary.values())])
    rows += [
        [title, *(f"{found[n]:.2f}" if n in found else "" for n in names)]
        for title, found in result.joint.items()
    ]
    table = format_table(["", *(metrics.label(name) for name in names)], rows)
    legend = [f"  {line}" for line in metrics.legend(names)]
    legend.append("  spread: standard deviation over the seeds")
    if result.joint:
        legend.append("  seeds with greedy search, the others with the default beam search")
    if result.bundle is not None:
        legend.append(f"  bundle: {result.bundle}")
    return "\n".join([table, "", *legend])
