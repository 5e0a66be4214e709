"""Models: the Transformer and the recurrent encoder–decoder, behind one contract."""

from regard.models.build import build
from regard.models.contract import Model, State
from regard.models.recurrent import Recurrent
from regard.models.swift import swift
from regard.models.transformer import Transformer

__all__ = ["Model", "Recurrent", "State", "Transformer", "build", "swift"]
