"""Geometry of embedding tables: cosines, neighbours, analogies, and the common file formats."""

from regard.vectors.vector_files import Accuracy, Section
from regard.vectors.word_vectors import Vectors, cosine, pca_plane, similarities, unit

__all__ = ["Accuracy", "Section", "Vectors", "cosine", "pca_plane", "similarities", "unit"]
