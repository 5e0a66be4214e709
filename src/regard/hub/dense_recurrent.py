"""A recurrent model on padded batches, for tracing: encoder and decoder step.

The encoder calls ONNX's own GRU and LSTM, which read the lengths of padded sequences; traced from
torch, a recurrent layer would be unrolled to a fixed length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.masks import PaddingMask, everything
from regard.hub.dense_transformer import AttentionView, embed

GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}  # ONNX's order of torch's gates
FLOAT = 1  # ONNX's number of float32


class BidirectionalLayer(nn.Module):
    """One layer of a bidirectional encoder as an ONNX operator."""

    def __init__(self, cell: nn.RNNBase, layer: int) -> None:
        super().__init__()
        self.kind, self.width = type(cell).__name__, cell.hidden_size
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            sides = [getattr(cell, f"{name}_l{layer}{side}") for side in ("", "_reverse")]
            self.register_buffer(name, torch.stack([self._reordered(side) for side in sides]))
        self.register_buffer("bias", torch.cat([self.bias_ih, self.bias_hh], 1))

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    bias: Tensor

    def _reordered(self, gates: Tensor) -> Tensor:
        parts = gates.detach().chunk(len(GATES[self.kind]))
        return torch.cat([parts[gate] for gate in GATES[self.kind]])

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """All states (time, batch, 2 · width), and the last of each direction (2, batch, width)."""
        options: dict[str, Any] = {"hidden_size": self.width, "direction": "bidirectional"}
        if self.kind == "GRU":
            options["linear_before_reset"] = 1  # as in torch: n = tanh(Wx + r ⊙ (Uh + b))
        time, batch, _ = x.shape
        outputs = [(time, 2, batch, self.width)] + [(2, batch, self.width)] * (
            2 if self.kind == "LSTM" else 1
        )
        states, last, *_ = torch.onnx.ops.symbolic_multi_out(
            self.kind,
            (x, self.weight_ih, self.weight_hh, self.bias, lengths.int()),
            options,
            dtypes=[FLOAT] * len(outputs),
            shapes=outputs,
        )
        return states.transpose(1, 2).flatten(2), last


class DenseRecurrentEncoder(nn.Module):
    """(ids, lengths) → what each step reads of the source, then the first hidden state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embedding, self.attention = model.source, model.attention
        self.initial, self.depth = model.initial, model.settings.decoder_layers
        self.has_cell_state = model.settings.cell == "lstm"
        self.layers = nn.ModuleList(
            BidirectionalLayer(model.encoder, layer) for layer in range(model.encoder.num_layers)
        )

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        x = embed(self.embedding, ids, torch.arange(ids.shape[1])).transpose(0, 1)
        last = x
        for layer in self.layers:
            x, last = layer(x, lengths)
        summary, states = torch.cat([last[0], last[1]], -1), x.transpose(0, 1)
        hidden = torch.tanh(self.initial(summary)).unflatten(-1, (self.depth, -1))
        memory = (
            (summary,)
            if self.attention is None
            else (self.attention.keys(states)[:, None], states[:, None])
        )
        return (*memory, hidden, *([torch.zeros_like(hidden)] if self.has_cell_state else []))


class DenseRecurrentStep(nn.Module):
    """(tokens, lengths, memory, past) → logits of the next token and the new hidden state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embedding, self.attention, self.decoder = model.target, model.attention, model.decoder
        self.attends_before = model.attends_before
        self.readout, self.output = model.readout, model.output

    def forward(
        self, tokens: Tensor, lengths: Tensor, memory: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        embedded = embed(self.embedding, tokens, torch.arange(1))
        context, inputs = memory[0], [embedded]
        if self.attends_before:
            context = self._context(past[0][:, -1], memory, lengths)
        if self.attention is None or self.attends_before:
            inputs.append(context)
        hidden = tuple(part.transpose(0, 1).contiguous() for part in past)
        states, after = self.decoder(
            torch.cat(inputs, -1)[None], hidden if len(hidden) == 2 else hidden[0]
        )
        if self.attention is not None and not self.attends_before:
            context = self._context(states[0], memory, lengths)
        read = torch.tanh(self.readout(torch.cat([states[0], context], -1)))
        present = after if isinstance(after, tuple) else (after,)
        return self.output(read), *(part.transpose(0, 1) for part in present)

    def _context(self, states: Tensor, memory: list[Tensor], lengths: Tensor) -> Tensor:
        queries = self.attention.queries(states)[:, None, None]
        keys, values = memory
        sizes = queries.shape[0], 1, torch.arange(1), keys.shape[2]
        view, parts = AttentionView.of(*sizes, PaddingMask(lengths)), self.attention.attention
        weights: Tensor = parts.normaliser(parts.score(queries, keys), view.allowed(everything))
        return (weights @ values)[:, 0, 0]
