"""The operations of a decoder's step in plain torch, row by row: what the kernels must give, and a
stand-in for them
where there is no GPU. The beam's bookkeeping is the host's own Board."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from regard.search.beam_state import BeamState
from regard.search.constraints import NEG_INF
from regard.search.length_penalty import LengthPenalty


def embed(tokens, table, places, time, norm):
    x = table[tokens.long()].float()
    if places is not None:
        x = x + places[time.long()].repeat_interleave(len(tokens) // len(time), 0)
    return x, normed(x, norm).to(table.dtype)


def linear(x, weight, bias, *, relu=False):
    total = x @ weight if bias is None else x @ weight + bias
    return total.relu() if relu else total


def logits(x, weight):
    return (x @ weight).float()


def linear_add_norm(x, y, weight, bias, norm):
    change = linear(y, weight, bias)
    total = x + change.float()
    x.copy_(total if norm is None or norm.before else normed(total, norm))
    return normed(total, norm).to(change.dtype)


def normed(x, norm):
    if norm is None:
        return x
    shape = (x.shape[1],)
    if norm.bias is None:
        return F.rms_norm(x, shape, norm.weight.float(), norm.eps)
    return F.layer_norm(x, shape, norm.weight.float(), norm.bias.float(), norm.eps)


def swiglu(inner):
    one, other = inner.float().chunk(2, 1)
    return (F.silu(one) * other).to(inner.dtype)


def cached_attention(asked, past, clock, ancestors, turns, line):
    rows, _, length_batches, _, dim = past.shape
    beams, parts = rows // len(clock.time), asked.float().view(rows, -1, dim)
    heads = parts.shape[1] - 2 * length_batches
    out = torch.zeros(rows, heads, dim)
    for row in range(rows):
        now = int(clock.time[row // beams])
        if not clock.active[row // beams]:
            continue
        compared, values = parts[row].split((heads + length_batches, length_batches))
        if turns is not None:
            compared = (
                compared * turns.cos[now] + compared[:, turns.partner.long()] * turns.sin[now]
            )
        past[row, :, :, now] = torch.stack([compared[heads:], values])
        holders = [row] * now if ancestors is None else ancestors[now % 2, row, :now].tolist()
        held = torch.stack(
            [past[holder, :, :, when].float() for when, holder in enumerate([*holders, row])], 2
        )
        keys, values = held.repeat_interleave(heads // length_batches, 1)
        scores = torch.einsum("hd,htd->ht", compared[:heads], keys) / math.sqrt(dim)
        if line is not None:
            scores = scores + line[:, : now + 1].flip(1)
        out[row] = torch.einsum("ht,htd->hd", scores.softmax(1), values)
    return out.flatten(1).to(asked.dtype)


def cross_attention(asked, memory, clock):
    slots, _, length_batches, _, dim = memory.shape
    queries = asked.float().view(slots, -1, asked.shape[1] // dim, dim)
    out = torch.zeros_like(queries)
    for slot in range(slots):
        if clock.active[slot]:
            held = memory[slot, :, :, : int(clock.source_length[slot])].float()
            keys, values = held.repeat_interleave(queries.shape[2] // length_batches, 1)
            weights = (torch.einsum("bhd,htd->bht", queries[slot], keys) / math.sqrt(dim)).softmax(
                2
            )
            out[slot] = torch.einsum("bht,htd->bhd", weights, values)
    return out.view_as(asked).to(asked.dtype)


def permitted(logits, clock, end):
    """Log-probabilities, and the same with what may not be said at −∞."""
    logps = logits.float().log_softmax(1)
    beams, allowed = len(logps) // len(clock.time), logps.clone()
    for row in range(len(logps)):
        slot = row // beams
        if clock.time[slot] >= clock.max_length[slot]:
            allowed[row], allowed[row, end] = NEG_INF, logps[row, end]
        if clock.time[slot] < clock.min_length[slot]:
            allowed[row, end] = NEG_INF
    return logps, allowed


def greedy_step(logits, clock, books, end):
    logps, allowed = permitted(logits, clock, end)
    values, tokens = allowed.topk(2)
    for slot in clock.active.nonzero()[:, 0].tolist():
        now, token = int(clock.time[slot]), int(tokens[slot, 0])
        books.history[slot, now], books.logps[slot, now], books.tokens[slot] = (
            token,
            logps[slot, token],
            token,
        )
        books.margin[slot] = min(books.margin[slot], values[slot, 0] - values[slot, 1])
        clock.active[slot], clock.time[slot] = int(token != end), now + 1


class Penalties(LengthPenalty):
    """Those written in the books."""

    def __init__(self, table):
        object.__setattr__(self, "table", table.tolist())

    def divisor(self, length):
        return self.table[length]


def beam_step(logits, clock, books, end):
    beams, vocabulary = books.history.shape[2], logits.shape[1]
    logps, allowed = (x.view(-1, beams * vocabulary) for x in permitted(logits, clock, end))
    for slot in clock.active.nonzero()[:, 0].tolist():
        now, own = int(clock.time[slot]), slice(slot * beams, slot * beams + beams)
        board = BeamState(
            beams,
            books.top.shape[1],
            Penalties(books.penalties),
            [int(clock.max_length[slot])],
            math.inf,
        )
        board.tokens_so_far, board.logps = (
            np.zeros((1, beams, now), np.int64),
            np.zeros((1, beams, now)),
        )
        board.margins[:] = float(books.margin[slot])
        board.worst[:] = float(books.top[slot].min())
        kept = [score for score in books.top[slot].tolist() if score > NEG_INF]
        board.finished = [[type("Answer", (), {"score": score}) for score in kept]]
        totals = allowed[slot] + books.scores.view(-1)[own].repeat_interleave(vocabulary)
        values, places = F.pad(totals, (0, 2 * beams + 1), value=NEG_INF).topk(2 * beams + 1)
        places = places.clamp(max=beams * vocabulary - 1)
        came, tokens, numbers = places // vocabulary, places % vocabulary, logps[slot, places]
        ends = (tokens == end) & (values > NEG_INF)
        books.ends[slot, now] = values[:beams].masked_fill(~ends[:beams], NEG_INF)
        books.enders[slot, now], books.end_logps[slot, now] = came[:beams].int(), numbers[:beams]
        on = (~ends).nonzero()[:beams, 0]
        chosen = (came[None].numpy(), tokens[None].numpy())
        board.advance(values[None].double().numpy(), *chosen, numbers[None].double().numpy())
        scores = sorted((answer.score for answer in board.finished[0]), reverse=True)[
            : books.top.shape[1]
        ]
        books.top[slot] = torch.tensor([*scores, *[NEG_INF] * (books.top.shape[1] - len(scores))])
        books.margin[slot] = float(board.margins[0])
        for table, new in ((books.history, tokens), (books.parents, came), (books.logps, numbers)):
            table[slot, now] = new[on].to(table.dtype)
        books.tokens[own] = tokens[on].int()
        books.scores.view(-1)[own] = values[on]
        old, new = books.ancestors[now % 2], books.ancestors[(now + 1) % 2]
        for beam, parent in enumerate(came[on].tolist()):
            new[own.start + beam, :now] = old[own.start + parent, :now]
            new[own.start + beam, now] = own.start + parent
        clock.active[slot], clock.time[slot] = len(board.active), now + 1
