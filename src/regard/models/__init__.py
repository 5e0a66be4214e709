"""Models: the Transformer and the recurrent encoder–decoder, behind one contract, alone or several as one."""

from regard.models.build import build
from regard.models.condition import finite, undisturbed
from regard.models.contract import Model, State
from regard.models.ensemble import Ensemble
from regard.models.recurrent import Recurrent
from regard.models.swift import swift
from regard.models.transformer import Transformer
from regard.models.twin import Twin

__all__ = ["Ensemble", "Model", "Recurrent", "State", "Transformer", "Twin", "build", "finite", "swift", "undisturbed"]
