"""Search: from a model's logits to a text. Knows the contract of models, and no architecture."""

from regard.search.attention_weights import alignment, looks
from regard.search.batch_invariance import settled
from regard.search.beam import Beam, Beams
from regard.search.greedy import Greedy
from regard.search.hypothesis import Found, Hypothesis, Search
from regard.search.length_batching import groups, limits, search_all
from regard.search.length_penalty import Length
from regard.search.lexical_constraints import Required
from regard.search.sampling import Sampling

__all__ = [
    "Beam",
    "Beams",
    "Found",
    "Greedy",
    "Hypothesis",
    "Length",
    "Required",
    "Sampling",
    "Search",
    "alignment",
    "groups",
    "limits",
    "looks",
    "search_all",
    "settled",
]
