"""Writes docs/reference/api.md: every public name of `regard`, for mkdocstrings to fill in."""

from __future__ import annotations

import inspect

import regard

HEAD = """# Python API

Everything public in `regard`. Signatures and descriptions come from the code when the site is
built; this list is generated (`python docs/scripts/build.py --pages`), and a test keeps it up to
date. Names are imported on first use, so `import regard` takes no time.
"""
GROUPS = {
    "Train and evaluate": [
        "train",
        "evaluate",
        "calibrate",
        "distill",
        "quantize",
        "Callback",
        "Metric",
    ],
    "Load and predict": ["load", "Pipeline", "Answer", "DecodingOptions"],
    "Call a server": ["Client", "AsyncClient"],
    "Exchange": ["import_model", "export"],
    "Look inside": ["record", "Trace", "show"],
    "Attention": [
        *("attend", "Attention", "MultiHead", "Cache", "Ragged"),
        *("everything", "causal", "window", "prefix"),
    ],
    "Errors": ["RegardError", "debug"],
}
MASKS = "regard.attention.masks"  # masks without options are instances, which know no module
MODULES = {
    "regard.plots": "plots for notebooks and papers ([examples](../guides/trace.md#plot))",
    "regard.vectors": "cosines, neighbours and analogies over embedding tables",
    "regard.pooling": "Nadaraya–Watson regression as a scikit-learn estimator",
}


def home(name: str) -> str:
    """Where a public name is defined."""
    thing = getattr(regard, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return f"{thing.__module__}.{thing.__qualname__}"
    return f"{MASKS}.{name}"


def page() -> str:
    """The whole page."""
    listed = {name for names in GROUPS.values() for name in names}
    others = sorted(set(regard.__all__) - listed)
    groups = {**GROUPS, **({"More": others} if others else {})}
    parts = [HEAD]
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        parts += [f"::: {home(name)}\n" for name in names]
    parts.append("## Modules\n\n| module | content |\n|---|---|")
    parts += [f"| `{name}` | {about} |" for name, about in MODULES.items()]
    return "\n".join(parts) + "\n"
