"""Models whose logits are known for every prefix, and exhaustive searches in plain Python."""

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
NextLogps = Callable[[Ids], list[float]]  # the log-probabilities of what follows a prefix

TRANSFORMER = TransformerSettings(
    width=16, heads=2, encoder_layers=1, decoder_layers=2, ffn_width=16, tie_embeddings="none"
)
MODELS = {
    "transformer": TRANSFORMER,
    "fast": TRANSFORMER,
    "recurrent": RecurrentSettings(width=16, attention="bahdanau"),
}


@dataclass(frozen=True)
class PrefixRows(State):
    """The source and the prefix of each row; rows of one source are adjacent."""

    rows: list[tuple[Ids, Ids]]
    sources: list[Ids]

    def select(self, rows):
        chosen = [self.rows[row] for row in rows.tolist()]
        return PrefixRows(chosen, [source for source, _ in chosen])

    def branch(self, rows, sources=None):
        kept = self.sources if sources is None else [self.sources[i] for i in sources.tolist()]
        chosen = [self.rows[row] for row in rows.tolist()]
        share = len(chosen) // max(1, len(kept))
        assert [source for source, _ in chosen] == [source for source in kept for _ in range(share)]
        return PrefixRows(chosen, kept)


class StepModel(Model):
    """A model that only decodes step by step."""

    def read(self, source, prefix):
        raise NotImplementedError

    def project(self, vectors):
        raise NotImplementedError

    def cross_attentions(self):
        return []


class RandomModel(StepModel):
    """Random logits, determined by the source and the prefix.

    `noise` is added by the size of the batch, as rounding in float32 does; `sizes` records the rows
    of each step. With `levels`, logits are multiples of 1 / levels, so that ties occur.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        seed: int = 0,
        end: float = 0.0,
        noise: float = 0.0,
        levels: int = 0,
    ) -> None:
        super().__init__()
        self.vocabulary, self.seed = vocabulary, seed
        self.end, self.noise = end, noise
        self.levels = levels
        self.sizes: list[int] = []
        self.dummy = torch.nn.Parameter(torch.zeros(1))

    def logits(self, source: Ids, prefix: Ids) -> torch.Tensor:
        key = hash((self.seed, source, prefix)) & (1 << 62) - 1
        logits = 2 * torch.randn(self.vocabulary, generator=torch.Generator().manual_seed(key))
        if self.levels:
            logits = (logits * self.levels).round() / self.levels
        logits[END] += self.end
        return logits

    def next_logps(self, source: Ids) -> NextLogps:
        return lambda prefix: self.logits(source, prefix).log_softmax(-1).tolist()

    def encode(self, source):
        return [tuple(row.tolist()) for row in source.unbind()]

    def start(self, memory):
        return PrefixRows([(source, ()) for source in memory], memory)

    def step(self, tokens, state):
        self.sizes.append(len(tokens))
        rows = [
            (source, (*prefix, token))
            for (source, prefix), token in zip(state.rows, tokens.tolist(), strict=True)
        ]
        assert all(prefix[0] == BEGIN for _, prefix in rows)
        logits = torch.stack([self.logits(source, prefix[1:]) for source, prefix in rows])
        draw = torch.Generator().manual_seed(len(rows) + 1000 * len(rows[0][1]))
        logits = logits + self.noise * torch.randn(logits.shape, generator=draw)
        return logits, PrefixRows(rows, state.sources)


def ragged(*rows) -> Ragged:
    return Ragged.of([torch.tensor(row) for row in rows])


def random_sources(count: int, *, vocabulary: int = 9, seed: int = 1) -> list[Ids]:
    """Distinct sources of 1 to 6 symbols and END."""
    draw = torch.Generator().manual_seed(seed)
    found: dict[Ids, None] = {}
    while len(found) < count:
        length = int(torch.randint(1, 7, (), generator=draw))
        found[(*torch.randint(3, vocabulary, (length,), generator=draw).tolist(), END)] = None
    return list(found)


def make_model(name: str, source: int, target: int, *, sharpness: float = 3.0) -> Model:
    """A small model with random weights, sharper than an untrained one, so that outputs differ."""
    model = build(MODELS[name], source, target).eval()
    with torch.no_grad():
        model.output.table.mul_(sharpness)
    return inference_model(model) if name == "fast" else model


@torch.no_grad()
def teacher_forced(model: Model, source: Ids, target: Ids) -> list[float]:
    """log p of each token and of END, by one teacher-forced pass."""
    logits = model(ragged(source), ragged((BEGIN, *target))).values
    chosen = torch.tensor([*target, END])[:, None]
    return logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()


@torch.no_grad()
def all_next_logps(model: Model, source: Ids, limit: int) -> NextLogps:
    """What follows every prefix of up to `limit` tokens, from one pass over all of them."""
    vocabulary = model(ragged(source), ragged((BEGIN,))).values.shape[1]
    leaves: list[Ids] = [()]
    for _ in range(limit):
        leaves = [(*leaf, token) for leaf in leaves for token in range(vocabulary) if token != END]
    logits = model(
        ragged(*[source] * len(leaves)), ragged(*((BEGIN, *leaf) for leaf in leaves))
    ).unbind()
    known = {
        leaf[:n]: row[n] for leaf, row in zip(leaves, logits, strict=True) for n in range(limit + 1)
    }
    return lambda prefix: known[prefix].log_softmax(-1).tolist()


def all_outputs(
    next_logps: NextLogps, limit: int, prefix: Ids = (), logp: float = 0.0
) -> Iterator[tuple[float, Ids]]:
    """Every output of up to `limit` tokens with its log-probability."""
    for token, number in enumerate(next_logps(prefix)):
        if token == END:
            yield logp + number, prefix
        elif len(prefix) < limit:
            yield from all_outputs(next_logps, limit, (*prefix, token), logp + number)


def ranked(outputs, penalty: Callable[[int], float]) -> list[tuple[float, Ids]]:
    """Outputs by their score, best first."""
    return sorted(((logp / penalty(len(ids) + 1), ids) for logp, ids in outputs), reverse=True)


def exhaustive_beam(
    next_logps: NextLogps, size: int, penalty: Callable[[int], float], limit: int
) -> list[tuple[float, Ids]]:
    """Beam search up to the limit, without early stopping.

    END counts if it is among the `size` best candidates.
    """
    live: list[tuple[float, Ids]] = [(0.0, ())]
    ended = []
    for length in range(limit + 1):
        candidates = sorted(
            (
                (score + number, prefix, token)
                for score, prefix in live
                for token, number in enumerate(next_logps(prefix))
                if length < limit or token == END
            ),
            reverse=True,
        )
        ended += [(score, prefix) for score, prefix, token in candidates[:size] if token == END]
        live = [(score, (*prefix, token)) for score, prefix, token in candidates if token != END]
        live = live[:size]
    return ranked(ended, penalty)
