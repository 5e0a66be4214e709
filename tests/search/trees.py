"""Models whose every sentence is known, and searches in plain Python that look at all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from regard.config import RecurrentSettings, TransformerSettings
from regard.inference import inference_model
from regard.models import Model, build
from regard.models.contract import State
from regard.ragged import Ragged
from regard.text import BEGIN, END

Ids = tuple[int, ...]
Next = Callable[[Ids], list[float]]  # the log-probabilities of what follows some tokens

TRANSFORMER = TransformerSettings(
    width=16, heads=2, encoder_layers=1, decoder_layers=2, ffn_width=16, tie_embeddings="none"
)
FAMILIES = {
    "transformer": TRANSFORMER,
    "swift": TRANSFORMER,
    "recurrent": RecurrentSettings(width=16, attention="bahdanau"),
}


@dataclass(frozen=True)
class Rows(State):
    """What each row has heard, and its source; side by side stand the rows of one source."""

    rows: list[tuple[Ids, Ids]]
    sources: list[Ids]

    def select(self, rows):
        chosen = [self.rows[row] for row in rows.tolist()]
        return Rows(chosen, [source for source, _ in chosen])

    def branch(self, rows, sources=None):
        kept = self.sources if sources is None else [self.sources[i] for i in sources.tolist()]
        chosen = [self.rows[row] for row in rows.tolist()]
        share = len(chosen) // max(1, len(kept))
        assert [source for source, _ in chosen] == [source for source in kept for _ in range(share)]
        return Rows(chosen, kept)


class Stepped(Model):
    """A model that is only ever asked step by step."""

    def read(self, source, prefix):
        raise NotImplementedError

    def project(self, vectors):
        raise NotImplementedError

    def cross_attentions(self):
        return []


class Chance(Stepped):
    """Any logits at all, drawn by lot from the source and what was said. `noise` is added by the
    size of the batch, as sums in 32 bits do; `sizes` keeps the rows of each step."""

    def __init__(
        self,
        vocabulary: int,
        *,
        seed: int = 0,
        end: float = 0.0,
        noise: float = 0.0,
        steps: int = 0,
    ) -> None:
        super().__init__()
        self.vocabulary, self.seed, self.end, self.noise = vocabulary, seed, end, noise
        self.coarse = steps  # logits in so many steps only, so that there are ties
        self.sizes: list[int] = []
        self.dummy = torch.nn.Parameter(torch.zeros(1))

    def logits(self, source: Ids, said: Ids) -> torch.Tensor:
        chance = torch.Generator().manual_seed(hash((self.seed, source, said)) & (1 << 62) - 1)
        logits = 2 * torch.randn(self.vocabulary, generator=chance)
        if self.coarse:
            logits = (logits * self.coarse).round() / self.coarse
        logits[END] += self.end
        return logits

    def next(self, source: Ids) -> Next:
        return lambda said: self.logits(source, said).log_softmax(-1).tolist()

    def encode(self, source):
        return [tuple(row.tolist()) for row in source.unbind()]

    def start(self, memory):
        return Rows([(source, ()) for source in memory], memory)

    def step(self, tokens, state):
        self.sizes.append(len(tokens))
        heard = [
            (source, (*said, token))
            for (source, said), token in zip(state.rows, tokens.tolist(), strict=True)
        ]
        assert all(said[0] == BEGIN for _, said in heard)
        logits = torch.stack([self.logits(source, said[1:]) for source, said in heard])
        wobble = torch.Generator().manual_seed(len(heard) + 1000 * len(heard[0][1]))
        logits = logits + self.noise * torch.randn(logits.shape, generator=wobble)
        return logits, Rows(heard, state.sources)


def ragged(*rows) -> Ragged:
    return Ragged.of([torch.tensor(row) for row in rows])


def sources(count: int, *, vocabulary: int = 9, seed: int = 1) -> list[Ids]:
    """Sources of 1 to 6 symbols and the end, no two alike."""
    chance = torch.Generator().manual_seed(seed)
    found: dict[Ids, None] = {}
    while len(found) < count:
        length = int(torch.randint(1, 7, (), generator=chance))
        found[(*torch.randint(3, vocabulary, (length,), generator=chance).tolist(), END)] = None
    return list(found)


def made(family: str, source: int, target: int, *, sharp: float = 3.0) -> Model:
    """A small model with random weights, sharper than one that knows nothing, so that answers
    differ.
    """
    model = build(FAMILIES[family], source, target).eval()
    with torch.no_grad():
        model.output.table.mul_(sharp)
    return inference_model(model) if family == "swift" else model


@torch.no_grad()
def forced(model: Model, source: Ids, said: Ids) -> list[float]:
    """log p of each token and of the end, by one teacher-forced pass."""
    logits = model(ragged(source), ragged((BEGIN, *said))).values
    chosen = torch.tensor([*said, END])[:, None]
    return logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()


@torch.no_grad()
def following(model: Model, source: Ids, limit: int) -> Next:
    """What follows any beginning of up to `limit` tokens, from one teacher-forced pass over all of
    them.
    """
    vocabulary = model(ragged(source), ragged((BEGIN,))).values.shape[1]
    leaves: list[Ids] = [()]
    for _ in range(limit):
        leaves = [(*said, token) for said in leaves for token in range(vocabulary) if token != END]
    logits = model(
        ragged(*[source] * len(leaves)), ragged(*((BEGIN, *leaf) for leaf in leaves))
    ).unbind()
    known = {
        leaf[:n]: row[n] for leaf, row in zip(leaves, logits, strict=True) for n in range(limit + 1)
    }
    return lambda said: known[said].log_softmax(-1).tolist()


def sentences(
    following: Next, limit: int, said: Ids = (), logp: float = 0.0
) -> Iterator[tuple[float, Ids]]:
    """Every answer of up to `limit` tokens with its log-probability."""
    for token, number in enumerate(following(said)):
        if token == END:
            yield logp + number, said
        elif len(said) < limit:
            yield from sentences(following, limit, (*said, token), logp + number)


def ranked(found, penalty: Callable[[int], float]) -> list[tuple[float, Ids]]:
    """Answers by their score, the best first."""
    return sorted(((logp / penalty(len(said) + 1), said) for logp, said in found), reverse=True)


def patient_beam(
    following: Next, size: int, penalty: Callable[[int], float], limit: int
) -> list[tuple[float, Ids]]:
    """Beam search without an early stop: to the limit. An end counts if it is among the `size` best
    candidates.
    """
    live: list[tuple[float, Ids]] = [(0.0, ())]
    ended = []
    for length in range(limit + 1):
        candidates = sorted(
            (
                (score + number, said, token)
                for score, said in live
                for token, number in enumerate(following(said))
                if length < limit or token == END
            ),
            reverse=True,
        )
        ended += [(score, said) for score, said, token in candidates[:size] if token == END]
        live = [(score, (*said, token)) for score, said, token in candidates if token != END][:size]
    return ranked(ended, penalty)
