"""The Transformer written down as a program of named steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import nn

from regard.attention import MultiHead
from regard.models.embedding import Embedding
from regard.models.layers import DecoderLayer, EncoderLayer, FeedForward, Sublayer
from regard.models.transformer import Transformer
from regard.positions import T5, Alibi, Distance, Learned, Rotary, Shaw, Sinusoidal
from regard.trace.operations import element_wise as single
from regard.trace.operations import matmul as sums
from regard.trace.operations import positional as places
from regard.trace.operations import row_wise as shares
from regard.trace.operations.operation import Operation
from regard.trace.program import Attended, Program, Step

SIDES = {"source": "src", "target": "tgt"}


def program(model: Transformer) -> Program:
    """Every step of a pass through the model, from ids to logits."""
    return Writer(model).program()


class Writer:
    """Writes the steps down, layer by layer. `named` knows each weight by the name it has in the file."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.named = {id(weight): name for name, weight in model.named_parameters()}
        self.attentions: list[Attended] = []

    def program(self) -> Program:
        """The encoder's steps, then those that depend on the target."""
        model = self.model
        before = list(self.embedding(model.source, "source"))
        x = "src.sum"
        for i, encoder in enumerate(model.encoder):
            before += self.encoder_layer(encoder, f"enc.{i}", x)
            x = before[-1].name
        before += self.last_norm(model.encoder_norm, "enc.norm", x, "source")
        memory = before[-1].name
        after = list(self.embedding(model.target, "target"))
        x = "tgt.sum"
        for i, decoder in enumerate(model.decoder):
            after += self.decoder_layer(decoder, f"dec.{i}", x, memory)
            x = after[-1].name
        after += self.last_norm(model.decoder_norm, "dec.norm", x, "target")
        logits = sums.Logits((after[-1].name,), (self.named[id(model.output.table)],))
        after += [Step("out.logits", ("target", "vocabulary"), logits), *ending()]
        return Program((*before, *after), len(before), tuple(self.attentions))

    def weights(self, module: nn.Module) -> tuple[str, ...]:
        """The names of a layer's weight and bias."""
        return tuple(self.named[id(p)] for p in (module.weight, getattr(module, "bias", None)) if p is not None)

    def embedding(self, embedding: Embedding, side: str) -> Iterator[Step]:
        """E[id] · √width, and the position where it is added."""
        short, axes = SIDES[side], (side, "width")
        table = (self.named[id(embedding.table)],)
        yield Step(f"{short}.embed", axes, single.Look((f"{short}.ids",), table, embedding.scale))
        position, places_ = embedding.position, (f"{short}.positions",)
        if isinstance(position, Sinusoidal):
            wave = single.Wave(places_, (), position.rates, position.width, position.order == "halves")
            yield Step(f"{short}.position", axes, wave)
        elif isinstance(position, Learned):
            yield Step(f"{short}.position", axes, single.Look(places_, (self.named[id(position.table)],)))
        names = (f"{short}.embed",) if position is None else (f"{short}.embed", f"{short}.position")
        yield Step(f"{short}.sum", axes, single.Add(names))

    def encoder_layer(self, layer: EncoderLayer, name: str, x: str) -> list[Step]:
        """Self-attention and feed-forward."""
        steps = self.attended(layer.residual1, layer.self_attention, f"{name}.self", x, 1)
        return steps + self.fed(layer.residual2, layer.feed_forward, name, steps[-1].name, 2, "source")

    def decoder_layer(self, layer: DecoderLayer, name: str, x: str, memory: str) -> list[Step]:
        """Causal self-attention, attention to the memory, feed-forward."""
        steps = self.attended(layer.residual1, layer.self_attention, f"{name}.self", x, 1)
        steps += self.attended(layer.residual2, layer.cross_attention, f"{name}.cross", steps[-1].name, 2, memory)
        return steps + self.fed(layer.residual3, layer.feed_forward, name, steps[-1].name, 3, "target")

    def attended(
        self, sublayer: Sublayer, heads: MultiHead, name: str, x: str, place: int, memory: str | None = None
    ) -> list[Step]:
        """An attention with its norm and its residual."""
        layer = name.rsplit(".", 1)[0]
        side = "source" if layer.startswith("enc") else "target"
        axes, norm, sum_ = (side, "width"), f"{layer}.norm{place}", f"{layer}.resid{place}"
        first = [self.norm(sublayer.norm, norm, x, axes)] if sublayer.before else []
        asked = norm if sublayer.before else x
        known = asked if memory is None else memory
        inner = list(self.heads(heads, name, asked, known, side, "source" if memory else side))
        last = [Step(sum_, axes, single.Residual((x, f"{name}.out")))]
        return [*first, *inner, *last, *([] if sublayer.before else [self.norm(sublayer.norm, norm, sum_, axes)])]

    def fed(self, sublayer: Sublayer, ffn: FeedForward, name: str, x: str, place: int, side: str) -> list[Step]:
        """The feed-forward layer with its norm and its residual."""
        axes, norm, sum_ = (side, "width"), f"{name}.norm{place}", f"{name}.resid{place}"
        first = [self.norm(sublayer.norm, norm, x, axes)] if sublayer.before else []
        inner = [
            Step(
                f"{name}.ffn.hidden", (side, "hidden"), sums.Linear(((norm if first else x),), self.weights(ffn.inner))
            ),
            Step(f"{name}.ffn.act", (side, "hidden"), single.ACTIVATIONS[ffn.activation]((f"{name}.ffn.hidden",))),
            Step(f"{name}.ffn.out", axes, sums.Linear((f"{name}.ffn.act",), self.weights(ffn.outer))),
            Step(sum_, axes, single.Residual((x, f"{name}.ffn.out"))),
        ]
        return [*first, *inner, *([] if sublayer.before else [self.norm(sublayer.norm, norm, sum_, axes)])]

    def heads(self, heads: MultiHead, name: str, asked: str, known: str, query: str, key: str) -> Iterator[Step]:
        """Queries, keys and values, scores, weights, contexts and what they become."""
        cross = (query, key) == ("target", "source")
        q, k, v = (f"{name}.{letter}" for letter in "qkv")
        for letter, module, x, side, count in (
            (q, heads.queries, asked, query, heads.heads),
            (k, heads.keys, known, key, heads.kv_heads),
            (v, heads.values, known, key, heads.kv_heads),
        ):
            axes = ("head" if count == heads.heads else "group", side, "dim")
            yield Step(letter, axes, sums.Heads((x,), self.weights(module), count))
        if isinstance(heads.turn, Rotary):
            for letter, side, count in ((q, query, heads.heads), (k, key, heads.kv_heads)):
                axes = ("head" if count == heads.heads else "group", side, "dim")
                turned = places.Turned((letter, f"{SIDES[side]}.positions"), (), heads.turn)
                yield Step(f"{letter}.turned", axes, turned)
            q, k = f"{q}.turned", f"{k}.turned"
        axes = ("head", query, key)
        yield Step(f"{name}.dots", axes, sums.Dots((q, k)))
        yield Step(f"{name}.scores", axes, single.Scale((f"{name}.dots",), (), 1 / math.sqrt(heads.dim)))
        stages, scores = ["dots", "scores"], f"{name}.scores"
        if (bias := self.bias(heads, q, query, key)) is not None:
            yield Step(f"{name}.bias", axes, bias)
            yield Step(f"{name}.biased", axes, single.Biased((scores, f"{name}.bias")))
            stages, scores = [*stages, "bias", "biased"], f"{name}.biased"
        causal = query == key == "target"
        yield Step(f"{name}.masked", axes, shares.Causal((scores,)) if causal else single.SameHeads((scores,)))
        yield Step(f"{name}.weights", axes, shares.Softmax((f"{name}.masked",)))
        yield Step(f"{name}.context", ("head", query, "dim"), sums.Mix((f"{name}.weights", v)))
        yield Step(f"{name}.joined", (query, "width"), single.Join((f"{name}.context",)))
        yield Step(f"{name}.out", (query, "width"), sums.Linear((f"{name}.joined",), self.weights(heads.out)))
        kind = "cross" if cross else {"source": "encoder", "target": "decoder"}[query]
        stages += ["masked", "weights"]
        self.attentions.append(Attended(name, kind, int(name.split(".")[1]), heads.heads, query, key, tuple(stages)))

    def bias(self, heads: MultiHead, q: str, query: str, key: str) -> Operation | None:
        """What the position encoding adds to the scores, if it does."""
        bias, where = heads.attention.bias, (f"{SIDES[query]}.positions", f"{SIDES[key]}.positions")
        if isinstance(bias, Alibi):
            return places.Slope(where, (), tuple(bias.slopes.tolist()))
        if isinstance(bias, Distance | T5):
            return places.FromTable(where, (self.named[id(bias.table)],), bias)
        if isinstance(bias, Shaw):
            return places.AgainstTable((q, *where), (self.named[id(bias.table)],), bias)
        return None

    def norm(self, norm: nn.Module, name: str, x: str, axes: tuple[str, ...]) -> Step:
        """LayerNorm or RMSNorm."""
        if isinstance(norm, nn.LayerNorm):
            return Step(name, axes, shares.LayerNorm((x,), self.weights(norm), norm.eps))
        assert isinstance(norm, nn.RMSNorm)
        return Step(name, axes, shares.RMSNorm((x,), self.weights(norm), norm.eps or 0.0))

    def last_norm(self, norm: nn.Module, name: str, x: str, side: str) -> list[Step]:
        """The norm after the last layer, where the layers have theirs before."""
        return [] if isinstance(norm, nn.Identity) else [self.norm(norm, name, x, (side, "width"))]


def ending() -> list[Step]:
    """From logits to the log-probability of the whole answer."""
    return [
        Step("out.logprobs", ("target", "vocabulary"), shares.LogSoftmax(("out.logits",))),
        Step("out.chosen", ("target",), shares.Chosen(("out.logprobs", "tgt.following"))),
        Step("out.total", (), shares.Total(("out.chosen",))),
        Step("out.score", (), shares.Penalised(("out.total",))),
    ]
