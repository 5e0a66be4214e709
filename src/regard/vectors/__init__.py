"""The geometry of any embedding table: cosines, neighbours, analogies, and the files tables come in."""

from regard.vectors.geometry import cosine, plane, similarities, unit
from regard.vectors.questions import Accuracy, Section
from regard.vectors.word_vectors import Vectors

__all__ = ["Accuracy", "Section", "Vectors", "cosine", "plane", "similarities", "unit"]
