"""Lexical constraints: token sequences that every output must contain, with a beam divided into
banks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError
from regard.search.constraints import NEG_INF, Scores, Tokens
from regard.text import END

Scored = tuple[float, int]  # a total, and its place in (beam × vocabulary)


class LexicalConstraints:
    """Divides the beam into banks by the number of required tokens produced, so that hypotheses
    with required words are not pruned by more likely ones without (Post & Vilar 2018).

    `opening` is each sequence as tokenized at the start of a text, which differs where pieces
    include the preceding space."""

    def __init__(
        self, sequences: Sequence[Sequence[int]], opening: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.sequences = [list(sequence) for sequence in sequences]
        self.opening = [list(sequence) for sequence in opening or sequences]
        if not all(self.sequences):
            raise RegardError("a required sequence has no tokens; leave it out")
        self.all = sum(map(len, self.sequences))

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        """As a constraint: no END before all required sequences are present."""
        missing = torch.tensor(
            [self.met(ids) < self.all for ids in tokens_so_far.tolist()], device=scores.device
        )
        scores = scores.clone()
        scores[missing, END] = NEG_INF
        return scores

    def met(self, ids: Sequence[int]) -> int:
        """How many required tokens are present: complete sequences, and the one in progress."""
        missing = self._missing(ids)
        begun = max((self._of(ids, *pair) for pair in missing), default=0)
        return self.all - sum(len(sequence) for sequence, _ in missing) + begun

    def needed(self, ids: Sequence[int]) -> set[int]:
        """The tokens that start or continue a missing sequence."""
        missing = self._missing(ids)
        opened = {opening[len(ids)] for _, opening in missing if _opens(ids, opening)}
        return opened | {
            token
            for sequence, _ in missing
            for token in (sequence[_begun(ids, sequence)], sequence[0])
        }

    def _missing(self, ids: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """The missing sequences, each with its opening form."""
        both = zip(self.sequences, self.opening, strict=True)
        return [
            (one, first)
            for one, first in both
            if not _contains(ids, one) and list(ids[: len(first)]) != first
        ]

    @staticmethod
    def _of(ids: Sequence[int], sequence: list[int], opening: list[int]) -> int:
        """How many tokens of a missing sequence the output ends with; never all."""
        opened = min(len(ids), len(sequence) - 1) if _opens(ids, opening) else 0
        return max(opened, _begun(ids, sequence))

    def pick(
        self,
        totals: Float[Tensor, "source place"],
        tokens_so_far: Int[Tensor, "source beam time"],
        size: int,
        vocabulary: int,
    ) -> tuple[Float[Tensor, "source picked"], Int[Tensor, "source picked"]]:
        """For each source, the candidates that end, then the `size` best others, bank by bank."""
        picked = [
            self._picked(line, ids, size, vocabulary)
            for line, ids in zip(totals.cpu(), tokens_so_far.tolist(), strict=True)
        ]
        values, places = (
            torch.tensor([[pair[i] for pair in row] for row in picked]) for i in (0, 1)
        )
        return values.to(totals), places.to(tokens_so_far)

    def _picked(
        self, totals: Tensor, tokens_so_far: list[list[int]], size: int, vocabulary: int
    ) -> list[Scored]:
        wanted = {
            b * vocabulary + token
            for b, ids in enumerate(tokens_so_far)
            for token in self.needed(ids)
        }
        # Include the most likely token of each beam, so that complete hypotheses can end.
        most_likely = (
            totals[: len(tokens_so_far) * vocabulary]
            .view(len(tokens_so_far), vocabulary)
            .argmax(1)
            .tolist()
        )
        wanted |= {b * vocabulary + token for b, token in enumerate(most_likely)}
        places = sorted(wanted | set(totals.topk(min(2 * size, len(totals))).indices.tolist()))
        scored = [(float(totals[place]), place) for place in places if totals[place] > NEG_INF]
        ends = [pair for pair in scored if pair[1] % vocabulary == END]
        banks: dict[int, list[Scored]] = {}
        for pair in sorted((pair for pair in scored if pair[1] % vocabulary != END), reverse=True):
            ids = tokens_so_far[pair[1] // vocabulary]
            banks.setdefault(self.met([*ids, pair[1] % vocabulary]), []).append(pair)
        kept: list[Scored] = []
        while len(kept) < size and any(banks.values()):  # in turn, the fullest bank first
            kept += [banks[bank].pop(0) for bank in sorted(banks, reverse=True) if banks[bank]]
        row = sorted(ends, reverse=True)[:size] + sorted(kept[:size], reverse=True)
        return row + [(NEG_INF, 0)] * (2 * size + 1 - len(row))


def _contains(ids: Sequence[int], sequence: list[int]) -> bool:
    return any(
        list(ids[i : i + len(sequence)]) == sequence for i in range(len(ids) - len(sequence) + 1)
    )


def _opens(ids: Sequence[int], opening: list[int]) -> bool:
    """Whether the output so far is a proper prefix of the opening form."""
    return len(ids) < len(opening) and list(ids) == opening[: len(ids)]


def _begun(ids: Sequence[int], sequence: list[int]) -> int:
    """How many leading tokens of the sequence the output ends with."""
    for count in range(min(len(ids), len(sequence) - 1), 0, -1):
        if list(ids[-count:]) == sequence[:count]:
            return count
    return 0
