"""DividedCorpus: the training pairs and the held-out pairs of a corpus, from a single pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from regard.text import HeldOutSplit
from regard.text.reading import Pair
from regard.training.pairs import PairSource

MAX_RECORDED = 4_000_000  # characters of held-out pairs that are stored with the prepared data


class DividedCorpus:
    """A corpus and its held-out set: another corpus, or by `split` a part of it.

    A part is collected while the training pairs are read; otherwise it is what an earlier start
    recorded, or found by another pass.
    """

    def __init__(
        self,
        corpus: PairSource,
        held_out: PairSource | None,
        split: HeldOutSplit | None,
        recorded: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self._corpus, self._held_out, self._split = corpus, held_out, split
        self._found: list[Pair] | None = None
        if recorded is not None:
            self._found = [Pair(source, target) for source, target in recorded]

    def training_pairs(self) -> Iterator[Pair]:
        """The training pairs; reading all of them collects the held-out pairs."""
        if self._split is None:
            yield from self._corpus
            return
        found: list[Pair] = []
        for pair in self._corpus:
            if self._split.is_held_out(pair.source):
                found.append(pair)
            else:
                yield pair
        self._found = found

    def held_out_pairs(self) -> Iterable[Pair]:
        """The held-out pairs."""
        if self._split is None:
            return self._held_out or ()
        if self._found is None:
            self._found = list(self._split.held_out_pairs(self._corpus))
        return self._found

    def record(self) -> list[list[str]] | None:
        """The held-out pairs, to store; None if another corpus has them, or if they are long."""
        if self._split is None:
            return None
        pairs = list(self.held_out_pairs())
        if sum(len(pair.source) + len(pair.target) for pair in pairs) > MAX_RECORDED:
            return None
        return [list(pair) for pair in pairs]
