"""The recurrent encoder–decoder: through one vector (Cho 2014), or with attention (Bahdanau 2015, Luong 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.attention import Attention, Cache
from regard.attention.padded import Padded, pad
from regard.attention.scores import SCORES
from regard.config import RecurrentSettings
from regard.errors import RegardError, ShapeError
from regard.models.contract import Model, State
from regard.models.dropout import Dropout
from regard.models.embedding import Embedding, Output, ids_of
from regard.ragged import Ragged

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
Hidden = tuple[Tensor, ...]  # (layer, row, width) each: h, and c for an LSTM


@dataclass(frozen=True, eq=False)
class RecurrentState(State):
    """The decoder's hidden state, and the source it may look at."""

    hidden: Hidden
    memory: Cache
    summary: Float[Tensor, "row width"]

    def select(self, rows: Int[Tensor, " chosen"]) -> RecurrentState:
        """The chosen rows."""
        share = len(self.summary) // max(1, self.memory.rows)
        return self._chosen(rows, self.memory.select(rows // max(1, share)))

    def branch(self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None) -> RecurrentState:
        """The chosen rows; of the source only what leaves is touched."""
        return self._chosen(rows, self.memory if sources is None else self.memory.select(sources))

    def _chosen(self, rows: Tensor, memory: Cache) -> RecurrentState:
        hidden = tuple(h.index_select(1, rows) for h in self.hidden)
        return RecurrentState(hidden, memory, self.summary.index_select(0, rows))


@dataclass(frozen=True, eq=False)
class Memory:
    """A vector for each source token, and one for the whole source."""

    states: Ragged
    summary: Float[Tensor, "row width"]


class Look(nn.Module):
    """The decoder's attention: one head over the encoder's states, by the score of its paper.

    Luong's dot and general compare the states as they are; additive and concat project both first.
    """

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        projects = kind in ("additive", "concat")
        self.queries = nn.Linear(width, width, bias=False) if projects else nn.Identity()
        self.keys = nn.Linear(width, width) if projects else nn.Identity()
        self.attention = Attention(SCORES["additive" if projects else kind](1, width))

    def remember(self, states: Ragged) -> tuple[Ragged, Ragged]:
        """Keys and values of the source, once for all steps."""
        return states.like(self.keys(states.values)[:, None]), states.like(states.values[:, None])

    def forward(self, states: Ragged, keys: Any, values: Any) -> Float[Tensor, "token width"]:
        """What each state finds in the source."""
        asked = states.like(self.queries(states.values)[:, None])
        return self.attention(asked, keys, values).values[:, 0]


class Recurrent(Model):
    """Encoder in both directions, decoder in one. Bahdanau looks before each step, Luong after it."""

    def __init__(self, settings: RecurrentSettings, source: int, target: int) -> None:
        super().__init__()
        if settings.tie_embeddings == "all" and source != target:
            raise RegardError(
                f"model.tie_embeddings = 'all' needs one vocabulary for both sides; got {source} and {target}"
            )
        self.settings, width = settings, settings.width
        self.source = Embedding(source, width, dropout=settings.dropout)
        self.target = Embedding(target, width, dropout=settings.dropout)
        if settings.tie_embeddings == "all":
            self.target.table = self.source.table
        cell = CELLS[settings.cell]
        self.looks_before = settings.attention == "additive"
        context = width if settings.attention in ("none", "additive") else 0  # goes into the cell beside the token
        self.encoder = cell(width, width // 2, settings.encoder_layers, bidirectional=True)
        self.decoder = cell(width + context, width, settings.decoder_layers)
        self.first = nn.Linear(width, settings.decoder_layers * width)
        self.look = None if settings.attention == "none" else Look(settings.attention, width)
        self.readout = nn.Linear(2 * width, width)
        self.dropout = Dropout(settings.dropout)
        self.output = Output(target, width, tied=None if settings.tie_embeddings == "none" else self.target.table)

    def encode(self, source: Ragged) -> Memory:
        """The states of both directions, and the last of each as a summary."""
        embedded = self.source(source)
        packed, order, _ = pack(embedded)
        states, last = self.encoder(packed)
        final = last[0] if isinstance(last, tuple) else last
        values = torch.empty_like(states.data).index_copy(0, order, states.data)
        return Memory(embedded.like(self.dropout(values)), torch.cat([final[-2], final[-1]], -1))

    def looks(self) -> list[Attention]:
        """The one attention, if there is one."""
        return [] if self.look is None else [self.look.attention]

    def start(self, memory: Memory) -> RecurrentState:
        """The first hidden state is made from the summary."""
        cache = Cache() if self.look is None else Cache().append(*self.look.remember(memory.states))
        return RecurrentState(self._begin(memory), cache, memory.summary)

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The readouts of all positions: at once where the next step does not wait for attention."""
        memory = self.encode(source)
        embedded = self.target(prefix)
        start = self._begin(memory)
        if self.looks_before:
            return prefix.like(self._walk(embedded, memory, start))
        summary = memory.summary[prefix.layout.rows]
        inputs = embedded.values if self.look else torch.cat([embedded.values, summary], -1)
        packed, order, rows = pack(embedded.like(inputs))
        first = tuple(h.index_select(1, rows) for h in start)
        states = self.decoder(PackedSequence(packed.data, packed.batch_sizes), _one_or_two(first))[0].data
        states = torch.empty_like(states).index_copy(0, order, states)
        found = summary if self.look is None else self.look(prefix.like(states), *self.look.remember(memory.states))
        return prefix.like(self._readout(states, found))

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """h · Eᵀ."""
        return self.output(vectors)

    def step(
        self, tokens: Int[Tensor, " row"], state: RecurrentState
    ) -> tuple[Float[Tensor, "row vocabulary"], RecurrentState]:
        """One position in each row."""
        embedded = self.target(ids_of(tokens))
        source = (state.memory.keys, state.memory.values) if self.look else None
        found, states, hidden = self._turn(embedded.values, state.hidden, source, state.summary)
        readout = self._readout(states, found)
        return self.project(readout), RecurrentState(hidden, state.memory, state.summary)

    def _begin(self, memory: Memory) -> Hidden:
        first = torch.tanh(self.first(memory.summary)).unflatten(-1, (self.settings.decoder_layers, -1)).transpose(0, 1)
        return (first.contiguous(), torch.zeros_like(first))[: 2 if self.settings.cell == "lstm" else 1]

    def _turn(
        self, embedded: Tensor, hidden: Hidden, source: tuple[Padded, Padded] | None, summary: Tensor
    ) -> tuple[Tensor, Tensor, Hidden]:
        """One turn of the cell for each row: what was found in the source, the new state, and all layers of it."""
        found = summary
        if self.looks_before:
            found = self._find(hidden[0][-1], source)
        inputs = torch.cat([embedded, found], -1) if self.look is None or self.looks_before else embedded
        states, after = self.decoder(inputs[None], _one_or_two(hidden))
        after = after if isinstance(after, tuple) else (after,)
        if self.look is not None and not self.looks_before:
            found = self._find(states[0], source)
        return found, states[0], after

    def _find(self, states: Tensor, source: tuple[Padded, Padded] | None) -> Tensor:
        assert self.look is not None
        assert source is not None
        # Rows that share a source ask it together, as if they were positions of one sequence.
        asked = self.look.queries(states).unflatten(0, (len(source[0].tensor), -1))[:, None]
        return self.look.attention(asked, *source)[:, 0].flatten(0, 1)

    def _walk(self, embedded: Ragged, memory: Memory, hidden: Hidden) -> Tensor:
        """Teacher forcing where each step waits for attention. Rows stand longest first: finished ones leave."""
        assert self.look is not None
        packed, order, rows = pack(embedded)
        hidden = tuple(h.index_select(1, rows) for h in hidden)
        source = [pad(part) for part in self.look.remember(memory.states)]
        source = [Padded(s.tensor[rows], None if s.lengths is None else s.lengths[rows]) for s in source]
        out, start = [], 0
        for count in packed.batch_sizes.tolist():
            hidden = tuple(h[:, :count] for h in hidden)
            here = tuple(Padded(s.tensor[:count], None if s.lengths is None else s.lengths[:count]) for s in source)
            found, states, hidden = self._turn(
                packed.data[start : start + count], hidden, (here[0], here[1]), memory.summary
            )
            out.append(self._readout(states, found))
            start += count
        walked = torch.cat(out)
        return torch.empty_like(walked).index_copy(0, order, walked)

    def _readout(self, states: Tensor, found: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.readout(torch.cat([states, found], -1))))


def pack(sequences: Ragged) -> tuple[PackedSequence, Int[Tensor, " token"], Int[Tensor, " row"]]:
    """A ragged batch as torch's recurrent layers want it, time before row and longest row first, with no padding in
    between; and which token and which row each place came from."""
    lengths = sequences.lengths
    if len(sequences) == 0 or int(lengths.min()) == 0:
        raise ShapeError("a recurrent model reads no empty sequence; END or BEGIN belongs in each")
    rows = lengths.argsort(descending=True, stable=True)
    rank = rows.argsort()
    order = (sequences.positions * len(sequences) + rank[sequences.layout.rows]).argsort()
    steps = torch.arange(sequences.longest, device=lengths.device)
    counts = (lengths[None] > steps[:, None]).sum(1).cpu()
    return PackedSequence(sequences.values[order], counts, rows, rank), order, rows


def _one_or_two(hidden: Hidden) -> Any:
    """torch wants h alone for a GRU, and (h, c) for an LSTM."""
    return tuple(h.contiguous() for h in hidden) if len(hidden) == 2 else hidden[0].contiguous()
