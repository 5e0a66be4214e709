"""Search: from a model's logits to a text. Knows the contract of models, and no architecture."""

from regard.search.beam import Beam, Beams
from regard.search.greedy import Greedy
from regard.search.grouped import groups, limits, search_all
from regard.search.hypothesis import Found, Hypothesis, Search
from regard.search.length import Length
from regard.search.looks import alignment, looks
from regard.search.required import Required
from regard.search.sampling import Sampling
from regard.search.settled import settled

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
