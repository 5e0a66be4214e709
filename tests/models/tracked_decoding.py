"""A decoder state whose every step is compared with teacher forcing."""

import torch

from regard.models import Model
from regard.models.contract import State
from regard.ragged import Ragged
from tests.contracts.model_cases import SOURCE, TARGET


def random_batch(lengths: list[int], vocabulary: int = SOURCE) -> Ragged:
    """Random ids in sequences of these lengths."""
    return Ragged.of([torch.randint(vocabulary, (length,)) for length in lengths])


def assert_close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


class TrackedDecoding:
    """A state, with the prefix of each row and the index of its source tracked by hand."""

    def __init__(self, model: Model, source: Ragged) -> None:
        self.model, self.source = model, source
        self.state = model.start(model.encode(source))
        self.owners = list(range(len(source)))
        self.prefixes = torch.empty(len(source), 0, dtype=torch.long)

    def step(self) -> torch.Tensor:
        """Feed random tokens; the logits must be those of teacher forcing."""
        tokens = torch.randint(TARGET, (len(self.owners),))
        logits, self.state = self.model.step(tokens, self.state)
        self.prefixes = torch.cat([self.prefixes, tokens[:, None]], 1)
        assert_close(logits, self._teacher_forced())
        return logits

    def branch(self, rows: list[int], sources: list[int] | None = None) -> None:
        """Let rows share their sources, of which only `sources` stay."""
        kept = None if sources is None else _indices(sources)
        self._replace(rows, self.state.branch(_indices(rows), kept))

    def select(self, rows: list[int]) -> None:
        """Keep these rows, each with a source of its own."""
        self._replace(rows, self.state.select(_indices(rows)))

    def _replace(self, rows: list[int], state: State) -> None:
        self.state, self.prefixes = state, self.prefixes[_indices(rows)]
        self.owners = [self.owners[row] for row in rows]

    def _teacher_forced(self) -> torch.Tensor:
        """The logits after each row's prefix by a full pass, each row with its own source."""
        sources = self.source.unbind()
        repeated = Ragged.of([sources[owner] for owner in self.owners])
        full = self.model(repeated, Ragged.of(list(self.prefixes)))
        return torch.stack([row[-1] for row in full])


def _indices(rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.long)
