"""`regard train --seeds N`: the metrics of each seed, their mean ± spread, and the ensemble's."""

from __future__ import annotations

from regard.bundle import Bundle
from regard.commands.formats import format_table
from regard.seeds import SeedsResult
from regard.training import metrics


def format_seeds(result: SeedsResult) -> str:
    """The result as a plain-text table with a legend."""
    found, summary = result.metrics(), result.summary()
    names = list(summary)
    rows = [
        [_label(pipeline.bundle), *(f"{one[name]:.2f}" for name in names)]
        for pipeline, one in zip(result.pipelines, found, strict=True)
    ]
    rows.append(["mean ± spread", *(f"{mean:.2f} ± {std:.2f}" for mean, std in summary.values())])
    rows += [
        [title, *(f"{found[n]:.2f}" if n in found else "" for n in names)]
        for title, found in result.joint.items()
    ]
    table = format_table(["", *(metrics.label(name) for name in names)], rows)
    legend = [f"  {line}" for line in metrics.legend(names)]
    legend.append("  spread: standard deviation over the seeds")
    if any(pipeline.bundle.template.reversed for pipeline in result.pipelines):
        legend.append("  reversed: generates targets from the last token to the first")
    if result.joint:
        legend.append("  seeds with greedy search, the others with the default beam search")
    if result.bundle is not None:
        legend.append(f"  bundle: {result.bundle}")
    return "\n".join([table, "", *legend])


def _label(bundle: Bundle) -> str:
    """`seed 1`, or `seed 2, reversed`."""
    seed = f"seed {bundle.card['settings']['train']['seed']}"
    return f"{seed}, reversed" if bundle.template.reversed else seed
