"""Search: from a model's logits to a text. Knows the contract of models, and no architecture."""

from regard.search.greedy import greedy

__all__ = ["greedy"]
