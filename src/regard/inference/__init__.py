"""Inference: engines that run a model fast, with the model's own results."""

from regard.inference.fast_transformer import swift
from regard.inference.model_cache import Twin

__all__ = ["Twin", "swift"]
