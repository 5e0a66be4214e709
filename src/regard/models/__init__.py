"""Models: the Transformer and the recurrent encoder–decoder, behind one contract, alone or several as one."""

from regard.models.build import build
from regard.models.contract import Model, State
from regard.models.ensemble import Ensemble
from regard.models.eval_mode import finite, undisturbed
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer

__all__ = ["Ensemble", "Model", "Recurrent", "State", "Transformer", "build", "finite", "undisturbed"]
