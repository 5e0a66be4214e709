"""Search: from a model's logits to an output. Depends on the contract of models only."""

from regard.search.beam import Beam, BeamSearch
from regard.search.constraints import LexicalConstraints
from regard.search.greedy import Greedy
from regard.search.hypothesis import Hypothesis, LengthPenalty, Search, SearchResult
from regard.search.sampling import Sampling
from regard.search.search_batches import batch_invariant, length_batches, length_limits

__all__ = [
    "Beam",
    "BeamSearch",
    "Greedy",
    "Hypothesis",
    "LengthPenalty",
    "LexicalConstraints",
    "Sampling",
    "Search",
    "SearchResult",
    "batch_invariant",
    "length_batches",
    "length_limits",
]
