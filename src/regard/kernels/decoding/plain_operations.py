"""The operations of a decoding step in plain torch: the definition that the kernels implement.

They run on any device, one slot at a time, and are the reference in the kernels' tests.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.decoding.buffers import (
    BeamBuffers,
    GreedyBuffers,
    NormWeights,
    RotaryTable,
    SlotState,
)

NEG_INF = float("-inf")


def embed(
    tokens: Tensor, table: Tensor, positions: Tensor | None, time: Tensor, norm: NormWeights | None
) -> tuple[Tensor, Tensor]:
    """Token embeddings plus those of their positions, and the same after the first norm."""
    x = table[tokens.long()].float()
    if positions is not None:
        x = x + positions[time.long()].repeat_interleave(len(tokens) // len(time), 0)
    return x, _normalised(x, norm).to(table.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """x · weight + bias, and the part above zero if `relu`."""
    total = x @ weight if bias is None else x @ weight + bias
    return total.relu() if relu else total


def logits(x: Tensor, weight: Tensor) -> Tensor:
    """The logits of each row, in float32."""
    return (x @ weight).float()


def linear_add_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, norm: NormWeights | None
) -> Tensor:
    """Adds a sublayer's output y · weight + bias to the residual stream x, in place; returns the
    norm of the sum."""
    change = linear(y, weight, bias)
    total = x + change.float()
    x.copy_(total if norm is None or norm.before else _normalised(total, norm))
    return _normalised(total, norm).to(change.dtype)


def swiglu(inner: Tensor) -> Tensor:
    """silu(first half) · second half."""
    gate, value = inner.float().chunk(2, 1)
    return (F.silu(gate) * value).to(inner.dtype)


def cached_attention(
    qkv: Tensor,
    past: Tensor,
    state: SlotState,
    ancestors: Tensor | None,
    rotation: RotaryTable | None,
    bias_table: Tensor | None,
) -> Tensor:
    """Self-attention of each row's newest position; its key and value are appended to the cache.

    `qkv` holds queries, keys and values; `past` is the KV cache; `ancestors` names the rows that
    store a beam's past; `bias_table` (head, distance) is added to the scores.
    """
    rows, _, kv_heads, _, dim = past.shape
    beams, parts = rows // len(state.time), qkv.float().view(rows, -1, dim)
    heads = parts.shape[1] - 2 * kv_heads
    out = torch.zeros(rows, heads, dim)
    for row in range(rows):
        if not state.active[row // beams]:
            continue
        now = int(state.time[row // beams])
        compared, new_values = parts[row].split((heads + kv_heads, kv_heads))
        if rotation is not None:
            partners = compared[:, rotation.partner.long()]
            compared = compared * rotation.cos[now] + partners * rotation.sin[now]
        past[row, :, :, now] = torch.stack([compared[heads:], new_values])
        owners = [row] * now if ancestors is None else ancestors[now % 2, row, :now].tolist()
        history = [past[owner, :, :, time].float() for time, owner in enumerate([*owners, row])]
        keys, values = torch.stack(history, 2).repeat_interleave(heads // kv_heads, 1)
        scores = torch.einsum("hd,htd->ht", compared[:heads], keys) / math.sqrt(dim)
        if bias_table is not None:
            scores = scores + bias_table[:, : now + 1].flip(1)
        out[row] = torch.einsum("ht,htd->hd", scores.softmax(1), values)
    return out.flatten(1).to(qkv.dtype)


def cross_attention(queries: Tensor, memory: Tensor, state: SlotState) -> Tensor:
    """Attention of each row over the keys and values of its slot's source."""
    slots, _, kv_heads, _, dim = memory.shape
    split = queries.float().view(slots, -1, queries.shape[1] // dim, dim)
    out = torch.zeros_like(split)
    for slot in state.active.nonzero()[:, 0].tolist():
        source = memory[slot, :, :, : int(state.source_length[slot])].float()
        keys, values = source.repeat_interleave(split.shape[2] // kv_heads, 1)
        scores = torch.einsum("bhd,htd->bht", split[slot], keys) / math.sqrt(dim)
        out[slot] = torch.einsum("bht,htd->bhd", scores.softmax(2), values)
    return out.view_as(queries).to(queries.dtype)


def greedy_step(logits: Tensor, state: SlotState, buffers: GreedyBuffers, end: int) -> None:
    """Append the most probable token to each slot; a slot ends with `end`."""
    logps, allowed = _allowed_logps(logits, state, end)
    values, tokens = allowed.topk(2)
    for slot in state.active.nonzero()[:, 0].tolist():
        now, token = int(state.time[slot]), int(tokens[slot, 0])
        buffers.history[slot, now] = buffers.tokens[slot] = token
        buffers.logps[slot, now] = logps[slot, token]
        gap = values[slot, 0] - values[slot, 1]
        buffers.margin[slot] = torch.minimum(buffers.margin[slot], gap)
        state.active[slot] = int(token != end)
        state.time[slot] = now + 1


def beam_step(logits: Tensor, state: SlotState, buffers: BeamBuffers, end: int) -> None:
    """Append one token to each beam; a slot ends when no beam can improve its best hypotheses."""
    beams, vocabulary = buffers.history.shape[2], logits.shape[1]
    every = [x.view(-1, beams * vocabulary) for x in _allowed_logps(logits, state, end)]
    logps, allowed = every
    for slot in state.active.nonzero()[:, 0].tolist():
        scores = buffers.scores.view(-1)[slot * beams : (slot + 1) * beams]
        sums = allowed[slot] + scores.repeat_interleave(vocabulary)
        totals, index = F.pad(sums, (0, 2 * beams + 1), value=NEG_INF).topk(2 * beams + 1)
        index = index.clamp(max=beams * vocabulary - 1)
        parents, tokens = index // vocabulary, index % vocabulary
        ends = (tokens == end) & (totals > NEG_INF)
        worst, gaps = _accept(slot, ends, totals, parents, logps[slot, index], state, buffers)
        _extend(slot, ~ends, totals, parents, tokens, logps[slot, index], state, buffers)
        unfinished, now = totals[~ends].tolist(), int(state.time[slot])
        longest = int(state.max_length[slot])
        reach = unfinished[0] / float(buffers.penalties[[longest + 1, now + 2]].max())
        beaten = not reach > worst
        gaps += [unfinished[beams - 1] - unfinished[beams], worst - reach if beaten else math.inf]
        known = [gap for gap in gaps if not math.isnan(gap)]  # −∞ − −∞: there was no choice
        buffers.margin[slot] = min([float(buffers.margin[slot]), *known])
        state.active[slot] = int(not beaten and now < longest)
        state.time[slot] = now + 1


def _accept(
    slot: int,
    ends: Tensor,
    totals: Tensor,
    parents: Tensor,
    logps: Tensor,
    state: SlotState,
    buffers: BeamBuffers,
) -> tuple[float, list[float]]:
    """Record hypotheses that end among the best; returns the worst of the top scores and by how
    much these ends were accepted and others not."""
    beams, now = buffers.history.shape[2], int(state.time[slot])
    accepted = totals[:beams].masked_fill(~ends[:beams], NEG_INF)
    buffers.ends[slot, now] = accepted
    buffers.enders[slot, now] = parents[:beams].int()
    buffers.end_logps[slot, now] = logps[:beams]
    new = [total / float(buffers.penalties[now + 1]) for total in accepted.tolist()]
    top = sorted([*buffers.top[slot].tolist(), *new], reverse=True)[: buffers.top.shape[1]]
    buffers.top[slot] = torch.tensor(top)
    last = min([total for total in accepted.tolist() if total > NEG_INF], default=math.inf)
    late = max(totals[beams:][ends[beams:]].tolist(), default=NEG_INF)
    return top[-1], [last - float(totals[beams]), float(totals[beams - 1]) - late]


def _extend(
    slot: int,
    unfinished: Tensor,
    totals: Tensor,
    parents: Tensor,
    tokens: Tensor,
    logps: Tensor,
    state: SlotState,
    buffers: BeamBuffers,
) -> None:
    """Replace a slot's beams by the best unfinished candidates."""
    beams, now = buffers.history.shape[2], int(state.time[slot])
    chosen, first = unfinished.nonzero()[:beams, 0], slot * beams
    buffers.history[slot, now] = tokens[chosen].int()
    buffers.parents[slot, now] = parents[chosen].int()
    buffers.logps[slot, now] = logps[chosen]
    buffers.tokens[first : first + beams] = tokens[chosen].int()
    buffers.scores.view(-1)[first : first + beams] = totals[chosen]
    old, new = buffers.ancestors[now % 2], buffers.ancestors[(now + 1) % 2]
    for beam, parent in enumerate(parents[chosen].tolist()):
        new[first + beam, :now] = old[first + parent, :now]
        new[first + beam, now] = first + parent


def _allowed_logps(logits: Tensor, state: SlotState, end: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities, and the same with forbidden tokens at −∞: all but the end at the length
    limit, the end below the minimum length."""
    logps = logits.float().log_softmax(1)
    beams, allowed = len(logps) // len(state.time), logps.clone()
    for row in range(len(logps)):
        slot = row // beams
        if state.time[slot] >= state.max_length[slot]:
            allowed[row] = NEG_INF
            allowed[row, end] = logps[row, end]
        if state.time[slot] < state.min_length[slot]:
            allowed[row, end] = NEG_INF
    return logps, allowed


def _normalised(x: Tensor, norm: NormWeights | None) -> Tensor:
    if norm is None:
        return x
    shape = (x.shape[1],)
    if norm.bias is None:
        return F.rms_norm(x, shape, norm.weight.float(), norm.eps)
    return F.layer_norm(x, shape, norm.weight.float(), norm.bias.float(), norm.eps)
