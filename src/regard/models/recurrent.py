"""The recurrent encoder–decoder: through one vector (Cho 2014), or with attention (Bahdanau 2015,
Luong 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.attention import Attention, Cache
from regard.attention.cache import Padded, pad
from regard.config import RecurrentSettings
from regard.errors import RegardError, ShapeError
from regard.models.contract import Model, State
from regard.models.parts import Dropout, Embedding, Output, ids_of, make_normaliser, make_score
from regard.ragged import Ragged

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
Hidden = tuple[Tensor, ...]  # (layer, row, width) each: h, and c for an LSTM


@dataclass(frozen=True, eq=False)
class RecurrentState(State):
    """The decoder's hidden state, and the source's keys and values."""

    hidden: Hidden
    memory: Cache
    summary: Float[Tensor, "row width"]

    def select(self, rows: Int[Tensor, " chosen"]) -> RecurrentState:
        """The chosen rows."""
        share = len(self.summary) // max(1, self.memory.rows)
        return self._chosen(rows, self.memory.select(rows // max(1, share)))

    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> RecurrentState:
        """The chosen rows; the memory is copied only where sources leave."""
        return self._chosen(rows, self.memory if sources is None else self.memory.select(sources))

    def _chosen(self, rows: Tensor, memory: Cache) -> RecurrentState:
        hidden = tuple(h.index_select(1, rows) for h in self.hidden)
        return RecurrentState(hidden, memory, self.summary.index_select(0, rows))


@dataclass(frozen=True, eq=False)
class RecurrentMemory:
    """A vector for each source token, and a summary of the whole source."""

    states: Ragged
    summary: Float[Tensor, "row width"]


class SourceAttention(nn.Module):
    """The decoder's attention: one head over the encoder's states.

    A score that needs projected inputs (additive) gets W q and U k + b; others compare the states
    themselves, as Luong's dot and general do.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__()
        width = settings.width
        score = make_score(settings.score, 1, width)
        projects = score.needs_projection
        self.queries = nn.Linear(width, width, bias=False) if projects else nn.Identity()
        self.keys = nn.Linear(width, width) if projects else nn.Identity()
        self.attention = Attention(score, normaliser=make_normaliser(settings.normaliser))

    def project_memory(self, states: Ragged) -> tuple[Ragged, Ragged]:
        """Keys and values of the source, computed once for all steps."""
        keys, values = in_one_dtype(self.keys(states.values)), in_one_dtype(states.values)
        return states.like(keys[:, None]), states.like(values[:, None])

    def forward(self, states: Ragged, keys: Any, values: Any) -> Float[Tensor, "token width"]:
        """The context vector of each decoder state."""
        queries = states.like(in_one_dtype(self.queries(states.values))[:, None])
        return self.attention(queries, keys, values).values[:, 0]


def in_one_dtype(x: Tensor) -> Tensor:
    """`x` in the dtype of autocast, if it is on: cells and linear layers return different ones."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


class Recurrent(Model):
    """A bidirectional encoder and a decoder. Bahdanau attends before each step, Luong after it."""

    def __init__(self, settings: RecurrentSettings, source: int, target: int) -> None:
        super().__init__()
        if settings.tie_embeddings == "all" and source != target:
            raise RegardError(
                f"model.tie_embeddings = 'all' needs one vocabulary for both sides; got {source} "
                f"and {target}"
            )
        self.settings, width = settings, settings.width
        self.source = Embedding(source, width, dropout=settings.dropout)
        self.target = Embedding(target, width, dropout=settings.dropout)
        if settings.tie_embeddings == "all":
            self.target.table = self.source.table
        cell = CELLS[settings.cell]
        self.attends_before = settings.attention == "bahdanau"
        context = 0 if settings.attention == "luong" else width  # input besides the token
        self.encoder = cell(width, width // 2, settings.encoder_layers, bidirectional=True)
        self.decoder = cell(width + context, width, settings.decoder_layers)
        self.initial = nn.Linear(width, settings.decoder_layers * width)
        self.attention = None if settings.attention == "none" else SourceAttention(settings)
        self.readout = nn.Linear(2 * width, width)
        self.dropout = Dropout(settings.dropout)
        self.output = Output(
            target, width, tied=None if settings.tie_embeddings == "none" else self.target.table
        )

    def encode(self, source: Ragged) -> RecurrentMemory:
        """The states of both directions, and the final states as a summary."""
        embedded = self.source(source)
        packed, order, _ = pack(embedded)
        states, last = self.encoder(packed)
        final = last[0] if isinstance(last, tuple) else last
        values = torch.empty_like(states.data).index_copy(0, order, states.data)
        return RecurrentMemory(
            embedded.like(self.dropout(values)), torch.cat([final[-2], final[-1]], -1)
        )

    def cross_attentions(self) -> list[Attention]:
        """The attention to the source, if there is one."""
        return [] if self.attention is None else [self.attention.attention]

    def start(self, memory: RecurrentMemory) -> RecurrentState:
        """The initial hidden state, computed from the summary."""
        cache = (
            Cache()
            if self.attention is None
            else Cache().append(*self.attention.project_memory(memory.states))
        )
        return RecurrentState(self._initial_state(memory), cache, memory.summary)

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The readouts of all positions; in parallel unless each step needs the attention before
        it.
        """
        memory = self.encode(source)
        embedded = self.target(prefix)
        start = self._initial_state(memory)
        if self.attends_before:
            return prefix.like(self._teacher_forced(embedded, memory, start))
        summary = memory.summary[prefix.layout.rows]
        inputs = embedded.values if self.attention else torch.cat([embedded.values, summary], -1)
        packed, order, rows = pack(embedded.like(inputs))
        first = tuple(h.index_select(1, rows) for h in start)
        states = self.decoder(PackedSequence(packed.data, packed.batch_sizes), _cell_state(first))[
            0
        ].data
        states = torch.empty_like(states).index_copy(0, order, states)
        context = (
            summary
            if self.attention is None
            else self.attention(prefix.like(states), *self.attention.project_memory(memory.states))
        )
        return prefix.like(self._readout(states, context))

    @property
    def output_table(self) -> nn.Parameter | None:
        """E, unless another module replaced the output layer."""
        return self.output.table if isinstance(self.output, Output) else None

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """h · Eᵀ."""
        return self.output(vectors)

    def step(
        self, tokens: Int[Tensor, " row"], state: RecurrentState
    ) -> tuple[Float[Tensor, "row vocabulary"], RecurrentState]:
        """One position in each row."""
        embedded = self.target(ids_of(tokens))
        source = (state.memory.keys, state.memory.values) if self.attention else None
        context, states, hidden = self._cell_step(
            embedded.values, state.hidden, source, state.summary
        )
        readout = self._readout(states, context)
        return self.project(readout), RecurrentState(hidden, state.memory, state.summary)

    def _initial_state(self, memory: RecurrentMemory) -> Hidden:
        first = (
            torch.tanh(self.initial(memory.summary))
            .unflatten(-1, (self.settings.decoder_layers, -1))
            .transpose(0, 1)
        )
        return (first.contiguous(), torch.zeros_like(first))[
            : 2 if self.settings.cell == "lstm" else 1
        ]

    def _cell_step(
        self,
        embedded: Tensor,
        hidden: Hidden,
        source: tuple[Padded, Padded] | None,
        summary: Tensor,
    ) -> tuple[Tensor, Tensor, Hidden]:
        """One cell step per row: context vector, new output state and all hidden states."""
        context = summary
        if self.attends_before:
            context = self._context(hidden[0][-1], source)
        inputs = (
            torch.cat([embedded, context], -1)
            if self.attention is None or self.attends_before
            else embedded
        )
        states, after = self.decoder(inputs[None], _cell_state(hidden))
        after = after if isinstance(after, tuple) else (after,)
        if self.attention is not None and not self.attends_before:
            context = self._context(states[0], source)
        return context, states[0], after

    def _context(self, states: Tensor, source: tuple[Padded, Padded] | None) -> Tensor:
        assert self.attention is not None
        assert source is not None
        # Rows that share a source query it together, as if they were positions of one sequence.
        queries = self.attention.queries(states).unflatten(0, (len(source[0].tensor), -1))[:, None]
        return self.attention.attention(queries, *source)[:, 0].flatten(0, 1)

    def _teacher_forced(self, embedded: Ragged, memory: RecurrentMemory, hidden: Hidden) -> Tensor:
        """Teacher forcing step by step; rows are sorted by length, so finished rows drop out."""
        assert self.attention is not None
        packed, order, rows = pack(embedded)
        hidden = tuple(h.index_select(1, rows) for h in hidden)
        source = [pad(part) for part in self.attention.project_memory(memory.states)]
        source = [
            Padded(s.tensor[rows], None if s.lengths is None else s.lengths[rows]) for s in source
        ]
        out, start = [], 0
        for count in packed.batch_sizes.tolist():
            hidden = tuple(h[:, :count] for h in hidden)
            here = tuple(
                Padded(s.tensor[:count], None if s.lengths is None else s.lengths[:count])
                for s in source
            )
            context, states, hidden = self._cell_step(
                packed.data[start : start + count], hidden, (here[0], here[1]), memory.summary
            )
            out.append(self._readout(states, context))
            start += count
        outputs = torch.cat(out)
        return torch.empty_like(outputs).index_copy(0, order, outputs)

    def _readout(self, states: Tensor, context: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.readout(torch.cat([states, context], -1))))


def pack(sequences: Ragged) -> tuple[PackedSequence, Int[Tensor, " token"], Int[Tensor, " row"]]:
    """A ragged batch as a PackedSequence (time-major, longest row first), with the token and row
    that each entry came from."""
    lengths = sequences.lengths
    if len(sequences) == 0 or int(lengths.min()) == 0:
        raise ShapeError(
            "a recurrent model cannot read an empty sequence; each needs at least END or BEGIN"
        )
    rows = lengths.argsort(descending=True, stable=True)
    rank = rows.argsort()
    order = (sequences.positions * len(sequences) + rank[sequences.layout.rows]).argsort()
    steps = torch.arange(sequences.longest, device=lengths.device)
    counts = (lengths[None] > steps[:, None]).sum(1).cpu()
    return PackedSequence(sequences.values[order], counts, rows, rank), order, rows


def _cell_state(hidden: Hidden) -> Any:
    """The hidden state as torch expects it: h for a GRU, (h, c) for an LSTM."""
    return tuple(h.contiguous() for h in hidden) if len(hidden) == 2 else hidden[0].contiguous()
