"""Draws the figures of the pages with `regard.plots`, from the library and the included models.

They are drawn whenever the site is built, so they show what the code computes now. The HTML files
are the explorer with one stored prediction: live figures that need no server.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

import regard
from regard import plots
from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.pooling import NadarayaWatson
from regard.positions import Sinusoidal

ROYAL_FAMILY = {
    "king": [0.9, 0.8, 0.7, 0.1, 0.2],
    "queen": [0.9, 0.8, 0.7, 0.1, 0.7],
    "man": [0.8, 0.6, 0.6, 0.2, 0.1],
    "woman": [0.8, 0.6, 0.6, 0.2, 0.6],
}
SIX = [[1, 0, 0], [0.95, 0.1, 0], [0, 1, 0], [0, 0.95, 0.1], [-1, 0, 0], [0.5, 0.5, 0.5]]
W_Q = [[1.0, 1, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
W_K = [[1.0, 1, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0], [0, 0, 5, 3, 5, 0]]


def royal_family() -> Figure:
    """Cosines of four words."""
    return plots.similarity(torch.tensor(list(ROYAL_FAMILY.values())), list(ROYAL_FAMILY))


def regression() -> Figure:
    """Nadaraya–Watson regression as attention."""
    random = np.random.default_rng(0)
    keys = np.sort(random.uniform(0, 5, 40))[:, None]
    values = 2 * np.sin(keys[:, 0]) + keys[:, 0] ** 0.8 + random.normal(0, 0.4, 40)
    queries = np.linspace(0.1, 4.9, 100)[:, None]
    model = NadarayaWatson(kernel="gaussian", bandwidth=0.3).fit(keys, values)
    truth = 2 * np.sin(queries[:, 0]) + queries[:, 0] ** 0.8
    return plots.regression(
        keys[:, 0], values, queries[:, 0], model.weights(queries), query=30, truth=truth
    )


def variance() -> Figure:
    """The variance of dot products with and without scaling."""
    torch.manual_seed(0)
    dims = [1, 4, 16, 64, 256]
    figure, axes = pyplot.subplots(figsize=(5.5, 3), layout="constrained")
    products = {}
    for dim in dims:
        q, k = 2 * torch.rand(2, 20_000, dim) - 1
        products[dim] = (q * k).sum(-1)
    plain = [float(products[dim].var()) for dim in dims]
    scaled = [float((products[dim] / dim**0.5).var()) for dim in dims]
    axes.loglog(dims, plain, "o-", label="q · k")
    axes.loglog(dims, scaled, "s-", label="q · k / √d")
    axes.axhline(1 / 9, linewidth=0.8, linestyle=":", color="grey", label="1/9")
    axes.set(xlabel="width d", ylabel="variance")
    axes.legend(frameon=False)
    return figure


def six_vectors() -> Figure:
    """The six vectors before and after attention."""
    v = torch.tensor(SIX)
    queries, keys, values = (
        (v @ torch.as_tensor(w))[None, None] for w in (W_Q, W_K, torch.eye(3).tolist())
    )
    output = Attention(ScaledDot(heads=1, dim=6)).intermediates(queries, keys, values).context
    figure = pyplot.figure(figsize=(8, 4), layout="constrained")
    names, colours = [f"v{i}" for i in range(1, 7)], ["C0", "C0", "C3", "C3", "C2", "C1"]
    for place, (title, vectors) in enumerate(
        [("before", v), ("after attention", output[0, 0])], start=1
    ):
        axes: Any = figure.add_subplot(1, 2, place, projection="3d")
        for name, colour, (x, y, z) in zip(names, colours, vectors.tolist(), strict=True):
            axes.quiver(0, 0, 0, x, y, z, color=colour, arrow_length_ratio=0.1)
            axes.text(x, y, z, name, color=colour)
        axes.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1), title=title)
    return figure


def sinusoids() -> Figure:
    """Sinusoidal encodings."""
    return plots.position_map(Sinusoidal(64)(torch.arange(60)))


def head_wall() -> Figure:
    """All heads of the encoder of an included model."""
    return plots.head_wall(regard.record(regard.load("spelling"), "attention"), "encoder")


def alignment() -> Figure:
    """The alignment of letters and sounds in the recurrent model."""
    return plots.alignment(regard.record(regard.load("spelling-recurrent"), "attention"))


FIGURES: list[Callable[[], Figure]] = [
    royal_family, regression, variance, six_vectors, sinusoids, head_wall, alignment,
]  # fmt: skip
PAGES = {"attention": "spelling", "alignment": "spelling-recurrent"}  # live pages and their models


def draw(folder: Path) -> None:
    """Draw all figures and write all live pages."""
    folder.mkdir(parents=True, exist_ok=True)
    style = {"svg.hashsalt": "regard", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context({"backend": "svg", **style}):
        for make in FIGURES:
            figure = make()
            figure.savefig(folder / f"{make.__name__}.svg", metadata={"Date": None})
            pyplot.close(figure)
    for name, model in PAGES.items():
        regard.record(regard.load(model), "attention").show().save(folder / f"{name}.html")
