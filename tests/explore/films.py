"""A run with a training film for tests: weights that move from random ones to a bundle's."""

from pathlib import Path

import torch

from regard import bundle
from regard.bundle.film_files import write_snapshot
from tests.explore.helpers import save_bundle

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
