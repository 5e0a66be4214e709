"""Import of a Hugging Face folder as a bundle, without `transformers` and without running code."""

from __future__ import annotations

import torch

from regard.bundle.model_files import find_mismatch, shapes, unique_parameters
from regard.config import ModelSettings, parse
from regard.hub.checkpoint_tensors import ConvertedCheckpoint
from regard.models import Model, build


def build_model(converted: ConvertedCheckpoint) -> Model:
    """The model of a converted checkpoint, in eval mode."""
    settings = parse(ModelSettings, converted.settings, "model")
    with torch.random.fork_rng(devices=[]):
        model = build(settings, *converted.sizes)
    parameters = unique_parameters(model)
    mismatch = find_mismatch(shapes(parameters), shapes(converted.weights))
    assert mismatch is None, mismatch
    for name, parameter in parameters.items():
        parameter.data = converted.weights[name]
    return model.eval()
