"""Search: from a model's logits to an output. Depends on the contract of models only."""

from typing import TYPE_CHECKING

from regard.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.search.beam import Beam, BeamSearch
    from regard.search.constraints import LexicalConstraints
    from regard.search.greedy import Greedy
    from regard.search.hypothesis import Hypothesis, LengthPenalty, SearchResult
    from regard.search.sampling import Sampling
    from regard.search.search_batches import (
        Search,
        batch_invariant,
        length_batches,
        length_limits,
    )

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

_HOMES = {
    "beam": ("Beam", "BeamSearch"),
    "constraints": ("LexicalConstraints",),
    "greedy": ("Greedy",),
    "hypothesis": ("Hypothesis", "LengthPenalty", "SearchResult"),
    "sampling": ("Sampling",),
    "search_batches": ("Search", "batch_invariant", "length_batches", "length_limits"),
}
__getattr__ = lazy_names(__name__, _HOMES)
