"""A few sources of the held-out set for the model's card: pages open on them."""

from __future__ import annotations

from collections.abc import Sequence

from regard.text import Tokenizer

EXAMPLES = 6
LENGTHS = range(4, 13)  # tokens: long enough to align, short enough for large cells


def choose_examples(
    sources: Sequence[str], tokenizer: Tokenizer, count: int = EXAMPLES
) -> list[str]:
    """Sources of moderate length without unknown symbols, evenly spread.

    The choice does not depend on the model's outputs, so that examples are not its best ones."""
    lengths = {}
    for source in dict.fromkeys(source.strip() for source in sources):
        ids = tokenizer.encode(source)
        if ids and tokenizer.unknown not in ids:
            lengths[source] = len(ids)
    suitable = [source for source, length in lengths.items() if length in LENGTHS]
    if len(suitable) < count:  # the nearest in length
        middle = (LENGTHS.start + LENGTHS.stop) // 2
        suitable = sorted(lengths, key=lambda source: abs(lengths[source] - middle))[:count]
    count = min(count, len(suitable))
    return [suitable[i * len(suitable) // count] for i in range(count)]
