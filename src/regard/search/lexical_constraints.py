"""Required words: sequences of tokens that every answer must contain, found by a beam that keeps room for them."""

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
    """The beam is shared out among banks of hypotheses by how much of what is required they have said, so that one that
    says a required word is not pushed out by likelier ones that do not (Post & Vilar 2018).

    `opening` has, for each sequence, how it is said as the very first thing: where pieces carry the space before a
    word, that is otherwise than inside a text."""

    def __init__(self, sequences: Sequence[Sequence[int]], opening: Sequence[Sequence[int]] | None = None) -> None:
        self.sequences = [list(sequence) for sequence in sequences]
        self.opening = [list(sequence) for sequence in opening or sequences]
        if not all(self.sequences):
            raise RegardError("a required sequence has no tokens; leave it out")
        self.all = sum(map(len, self.sequences))

    def __call__(self, scores: Scores, tokens_so_far: Tokens) -> Scores:
        """As a rule: no end before everything required was said."""
        missing = torch.tensor([self.met(ids) < self.all for ids in tokens_so_far.tolist()], device=scores.device)
        scores = scores.clone()
        scores[missing, END] = NEG_INF
        return scores

    def met(self, ids: Sequence[int]) -> int:
        """How many required tokens were said: those of whole sequences, and of the one that has just begun."""
        missing = self._missing(ids)
        begun = max((self._of(ids, *pair) for pair in missing), default=0)
        return self.all - sum(len(sequence) for sequence, _ in missing) + begun

    def needed(self, ids: Sequence[int]) -> set[int]:
        """The tokens that would begin a missing sequence, or go on with one."""
        missing = self._missing(ids)
        opened = {opening[len(ids)] for _, opening in missing if _opens(ids, opening)}
        return opened | {token for sequence, _ in missing for token in (sequence[_begun(ids, sequence)], sequence[0])}

    def _missing(self, ids: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """What was not said yet, and how it would be said first."""
        both = zip(self.sequences, self.opening, strict=True)
        return [(one, first) for one, first in both if not _contains(ids, one) and list(ids[: len(first)]) != first]

    @staticmethod
    def _of(ids: Sequence[int], sequence: list[int], opening: list[int]) -> int:
        """How many tokens of a missing sequence were said just now; never all."""
        opened = min(len(ids), len(sequence) - 1) if _opens(ids, opening) else 0
        return max(opened, _begun(ids, sequence))

    def pick(
        self,
        totals: Float[Tensor, "source place"],
        tokens_so_far: Int[Tensor, "source beam time"],
        size: int,
        vocabulary: int,
    ) -> tuple[Float[Tensor, "source picked"], Int[Tensor, "source picked"]]:
        """For each source what ends, then the `size` that go on, bank by bank, and nothing more."""
        picked = [
            self._picked(line, ids, size, vocabulary)
            for line, ids in zip(totals.cpu(), tokens_so_far.tolist(), strict=True)
        ]
        values, places = (torch.tensor([[pair[i] for pair in row] for row in picked]) for i in (0, 1))
        return values.to(totals), places.to(tokens_so_far)

    def _picked(self, totals: Tensor, tokens_so_far: list[list[int]], size: int, vocabulary: int) -> list[Scored]:
        wanted = {b * vocabulary + token for b, ids in enumerate(tokens_so_far) for token in self.needed(ids)}
        # The likeliest of each beam too, else one that has said all and would end is never heard among likelier ones.
        most_likely = totals[: len(tokens_so_far) * vocabulary].view(len(tokens_so_far), vocabulary).argmax(1).tolist()
        wanted |= {b * vocabulary + token for b, token in enumerate(most_likely)}
        places = sorted(wanted | set(totals.topk(min(2 * size, len(totals))).indices.tolist()))
        scored = [(float(totals[place]), place) for place in places if totals[place] > NEG_INF]
        ends = [pair for pair in scored if pair[1] % vocabulary == END]
        banks: dict[int, list[Scored]] = {}
        for pair in sorted((pair for pair in scored if pair[1] % vocabulary != END), reverse=True):
            ids = tokens_so_far[pair[1] // vocabulary]
            banks.setdefault(self.met([*ids, pair[1] % vocabulary]), []).append(pair)
        going: list[Scored] = []
        while len(going) < size and any(banks.values()):  # in turn, those who said most of it first
            going += [banks[bank].pop(0) for bank in sorted(banks, reverse=True) if banks[bank]]
        row = sorted(ends, reverse=True)[:size] + sorted(going[:size], reverse=True)
        return row + [(NEG_INF, 0)] * (2 * size + 1 - len(row))


def _contains(ids: Sequence[int], sequence: list[int]) -> bool:
    return any(list(ids[i : i + len(sequence)]) == sequence for i in range(len(ids) - len(sequence) + 1))


def _opens(ids: Sequence[int], opening: list[int]) -> bool:
    """Whether all that was said is the first of these tokens, with some to come."""
    return len(ids) < len(opening) and list(ids) == opening[: len(ids)]


def _begun(ids: Sequence[int], sequence: list[int]) -> int:
    """How many of the sequence's first tokens the answer ends with."""
    for count in range(min(len(ids), len(sequence) - 1), 0, -1):
        if list(ids[-count:]) == sequence[:count]:
            return count
    return 0
