"""Inference: engines that run a model fast and compute what the model defines."""

from regard.inference.engines import (
    ENGINES,
    Engine,
    ModelCache,
    inference_model,
    search_all,
)

__all__ = ["ENGINES", "Engine", "ModelCache", "inference_model", "search_all"]
