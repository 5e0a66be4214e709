"""Search: from a model's logits to an output. Depends on the contract of models only."""

from regard.search.attention_weights import alignment, record_attention
from regard.search.batch_invariance import batch_invariant
from regard.search.beam import Beam, BeamSearch
from regard.search.greedy import Greedy
from regard.search.hypothesis import Hypothesis, Search, SearchResult
from regard.search.length_batching import length_batches, length_limits
from regard.search.length_penalty import LengthPenalty
from regard.search.lexical_constraints import LexicalConstraints
from regard.search.sampling import Sampling

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
    "alignment",
    "batch_invariant",
    "length_batches",
    "length_limits",
    "record_attention",
]
