"""Warning about inconsistent targets: sources that have several, and what this costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regard.text.data_checks import PairChecks

MIN_SHARE = 0.01  # of sources with several targets, below which there is no warning
MANY = 0.2  # of sources with several targets, which count as right
MIN_SOURCES = 20


def consistency_warnings(
    checks: PairChecks, held_out: Mapping[str, Sequence[str]] | None
) -> list[str]:
    """A warning if many training sources have several targets.

    All targets of a held-out source count as right. A held-out file in which sources have one
    target each, unlike the training data, therefore limits the accuracy that can be reached: the
    best model gives the most frequent target. `held_out` are its sources with their targets; None
    if the held-out set is split from the training data: all targets of a source stay together.
    """
    share, ceiling = checks.consistency()
    if checks.pairs < MIN_SOURCES or share < MIN_SHARE:
        return []
    several = f"warning: {_percent(share)} of the sources have more than one target"
    if held_out is not None and len(held_out):
        variants = sum(len(targets) > 1 for targets in held_out.values()) / len(held_out)
        if variants < share / 2:
            return [
                f"{several}, but {_percent(variants)} of the held-out sources: at most "
                f"{_percent(ceiling)} of held-out outputs can be right; list all targets of a "
                "held-out source, or keep one per source (regard clean --drop-conflicts)"
            ]
    if share <= MANY:
        return []
    return [
        f"{several}; each counts as right on the held-out set, but the model cannot learn which "
        "one is meant (regard clean --drop-conflicts keeps the most frequent)"
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
