"""Inference: engines that run a model fast and compute what the model defines."""

from regard.inference.engines import ENGINES, Engine, EngineError, inference_model
from regard.inference.model_cache import ModelCache
from regard.inference.run_search import search_all

__all__ = ["ENGINES", "Engine", "EngineError", "ModelCache", "inference_model", "search_all"]
