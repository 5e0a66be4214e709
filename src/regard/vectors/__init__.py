"""Geometry of embedding tables: cosines, neighbours, analogies, and the common file formats."""

from regard.vectors.analogy_questions import Accuracy, Section
from regard.vectors.geometry import cosine, pca_plane, similarities, unit
from regard.vectors.word_vectors import Vectors

__all__ = ["Accuracy", "Section", "Vectors", "cosine", "pca_plane", "similarities", "unit"]
