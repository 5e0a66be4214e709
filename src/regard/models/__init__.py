"""Models: the Transformer and the recurrent encoder–decoder behind one contract, and ensembles."""

from regard.models.contract import Model, State, eval_mode, is_finite
from regard.models.ensemble import Ensemble
from regard.models.families import FAMILIES, Family, build
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer

__all__ = [
    "FAMILIES",
    "Ensemble",
    "Family",
    "Model",
    "Recurrent",
    "State",
    "Transformer",
    "build",
    "eval_mode",
    "is_finite",
]
