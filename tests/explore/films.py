"""A run with a training film for tests: weights that move from random ones to a bundle's."""

from pathlib import Path

import torch

from regard import bundle
from regard.bundle.film_files import write_snapshot
from tests.explore.helpers import SETTINGS, save_bundle

STEPS = [0, 1, 2, 4, 8, 16, 32, 64]


def loss_at(step: int) -> float:
    """A loss that falls."""
    return 3.0 / (1 + step)


def save_run(folder: Path, family: str = "transformer") -> Path:
    """A bundle and its film: snapshot k has weights k/7 of the way from random to trained."""
    save_bundle(folder / "bundle", family)
    trained = dict(bundle.load(folder / "bundle").model.named_parameters())
    torch.manual_seed(7)
    random = {name: torch.randn_like(weight) / 4 for name, weight in trained.items()}
    for k, step in enumerate(STEPS):
        share = k / (len(STEPS) - 1)
        mixed = {name: torch.lerp(random[name], trained[name], share) for name in trained}
        write_snapshot(folder / "film", step, loss_at(step), mixed)
    return folder


RIGHT = 8  # the step from which on the output of a marked run is right


def save_marked_run(folder: Path) -> Path:
    """A run with exactly one marker: the finished model ends its output at once, and so do the
    snapshots from step 8 on; before, the end is the least probable token. No head changes."""
    settings = SETTINGS["transformer"].model_copy(update={"output_bias": True})
    made = bundle.load(save_bundle(folder / "first", settings=settings))
    end = made.template.end
    with torch.no_grad():
        made.model.output.bias.zero_()[end] = 100.0
    bundle.save(folder / "bundle", made)
    for step in STEPS:
        with torch.no_grad():
            made.model.output.bias[end] = 100.0 if step >= RIGHT else -100.0
        weights = {name: one.detach().clone() for name, one in made.model.named_parameters()}
        write_snapshot(folder / "film", step, loss_at(step), weights)
    return folder
