"""The Transformer as a program: every step from ids to logits, layer by layer."""

from __future__ import annotations

import torch
from torch import nn

from regard.attention import Attention, MultiHead
from regard.errors import RegardError
from regard.models.families import AttentionDescription, LayerDescription, describe
from regard.models.layers import DecoderLayer, EncoderLayer, FeedForward, Sublayer
from regard.models.parts import Embedding, Output
from regard.models.transformer import Transformer
from regard.positions import Learned, Sinusoidal
from regard.trace.operations import element_wise, positional, row_wise
from regard.trace.operations.activations import ACTIVATION_OPERATIONS
from regard.trace.operations.operation import Operation, in_float32
from regard.trace.program import SIDES, AttentionBlock, Program, ProgramBuilder, Step

STACKS = {"source": "encoder", "target": "decoder"}


def transformer_program(model: Transformer) -> Program:
    """Every step of a forward pass, from ids to logits."""
    return TransformerBuilder(model).program()


class TransformerBuilder(ProgramBuilder):
    """Builds the steps of a Transformer, layer by layer."""

    model: Transformer

    def program(self) -> Program:
        """The encoder's steps, then those that depend on the target."""
        model = self.model
        self.check()
        encoder = list(self.embedding(model.source, "source"))
        x = encoder[-1].name
        for i, layer in enumerate(model.encoder):
            encoder += self.layer(layer, f"enc.{i}", x)
            x = encoder[-1].name
        encoder += self.final_norm(model.encoder_norm, "enc.norm", x, "source")
        memory = encoder[-1].name
        decoder = list(self.embedding(model.target, "target"))
        x = decoder[-1].name
        for i, decoder_layer in enumerate(model.decoder):
            decoder += self.layer(decoder_layer, f"dec.{i}", x, memory)
            x = decoder[-1].name
        decoder += self.final_norm(model.decoder_norm, "dec.norm", x, "target")
        logits = self.output(model.output, decoder[-1].name)
        decoder += [Step("out.logits", ("target", "vocabulary"), logits), *output_steps()]
        return Program((*encoder, *decoder), len(encoder), tuple(self.attentions))

    def check(self) -> None:
        """Raise if a module of the model is not one that the tracer knows."""
        model = self.model
        self.require(model.source, Embedding, "the source embedding")
        self.require(model.target, Embedding, "the target embedding")
        self.require(model.output, Output, "the output projection")
        for stack, short, kind in (
            ("encoder", "enc", EncoderLayer),
            ("decoder", "dec", DecoderLayer),
        ):
            for i, layer in enumerate(getattr(model, stack)):
                self.require(layer, kind, f"{stack} layer {i}")
                self.require(layer.feed_forward, FeedForward, f"{short}.{i}.ffn")
                for part in ("self", "cross") if short == "dec" else ("self",):
                    heads = getattr(layer, f"{part}_attention")
                    self.require(heads, MultiHead, f"{short}.{i}.{part}")
                    self.require(heads.attention, Attention, f"{short}.{i}.{part}'s attention")
                for place in (1, 2, 3) if short == "dec" else (1, 2):
                    residual = getattr(layer, f"residual{place}")
                    self.require(residual, Sublayer, f"{short}.{i}.resid{place}")

    def embedding(self, embedding: Embedding, side: str) -> list[Step]:
        """E[id] · scale, the position vector if the encoding adds one, and the norm of the sum if
        there is one."""
        short, axes = SIDES[side], (side, "width")
        table = (self.parameter_names[id(embedding.table)],)
        lookup = element_wise.TableLookup((f"{short}.ids",), table, embedding.scale)
        steps = [Step(f"{short}.embed", axes, lookup)]
        if embedding.position is not None:
            steps.append(Step(f"{short}.position", axes, self.position(embedding.position, short)))
        added = element_wise.Addition(tuple(step.name for step in steps))
        steps.append(Step(f"{short}.sum", axes, added))
        if embedding.norm is not None:
            steps.append(self.norm(embedding.norm, f"{short}.norm", f"{short}.sum", axes))
        return steps

    def output(self, output: Output, x: str) -> Operation:
        """h · Eᵀ, and a bias if there is one."""
        table = self.parameter_names[id(output.table)]
        if output.bias is None:
            return row_wise.OutputProjection((x,), (table,))
        bias = self.parameter_names[id(output.bias)]
        return row_wise.BiasedOutputProjection((x,), (table, bias))

    def position(self, part: nn.Module, short: str) -> Operation:
        """The operation that makes position vectors."""
        where, weights = (f"{short}.positions",), self.parameters(part)
        if isinstance(part, Sinusoidal) and type(part) is Sinusoidal:
            halves = part.order == "halves"
            return element_wise.SinusoidalWave(where, (), part.frequencies, part.width, halves)
        if type(part) is Learned:
            return element_wise.TableLookup(where, weights)
        return positional.ComputedPosition(where, weights, in_float32(part))

    def layer(
        self, layer: EncoderLayer | DecoderLayer, name: str, x: str, memory: str | None = None
    ) -> list[Step]:
        """Self-attention, cross-attention if there is a memory, feed-forward."""
        described, side = describe(layer), "source" if memory is None else "target"
        attentions: list[tuple[str, AttentionDescription, str | None]] = [
            ("self", described.self_attention, None)
        ]
        if described.cross_attention is not None:
            attentions.append(("cross", described.cross_attention, memory))
        steps: list[Step] = []
        for place, (kind, attention, keys) in enumerate(attentions, 1):
            read = f"{name}.norm{place}" if described.pre_norm else x
            sides = (side, "source" if keys else side)
            inner = self.multi_head(attention, f"{name}.{kind}", (read, keys or read), sides)
            steps += self.sublayer(described, inner, name, x, place, side)
            x = steps[-1].name
        place = len(attentions) + 1
        read = f"{name}.norm{place}" if described.pre_norm else x
        inner = self.feed_forward(described.feed_forward, f"{name}.ffn", read, side)
        return steps + self.sublayer(described, inner, name, x, place, side)

    def feed_forward(self, ffn: FeedForward, name: str, x: str, side: str) -> list[Step]:
        """The feed-forward layer."""
        if ffn.activation not in ACTIVATION_OPERATIONS:
            known = ", ".join(ACTIVATION_OPERATIONS)
            raise RegardError(
                f"cannot trace {name}: unknown activation {ffn.activation!r}; use {known}"
            )
        hidden, act, out = (f"{name}.{part}" for part in ("hidden", "act", "out"))
        inner = row_wise.LinearProjection((x,), self.linear(ffn.inner, hidden))
        outer = row_wise.LinearProjection((act,), self.linear(ffn.outer, out))
        activation = ACTIVATION_OPERATIONS[ffn.activation]((hidden,))
        return [
            Step(hidden, (side, "hidden"), inner),
            Step(act, (side, "hidden"), activation),
            Step(out, (side, "width"), outer),
        ]

    def sublayer(
        self,
        described: LayerDescription,
        inner: list[Step],
        layer: str,
        x: str,
        place: int,
        side: str,
    ) -> list[Step]:
        """x + f(norm(x)), or norm(x + f(x)); f is `inner`."""
        axes, norm, total = (side, "width"), f"{layer}.norm{place}", f"{layer}.resid{place}"
        residual = Step(total, axes, element_wise.ResidualAddition((x, inner[-1].name)))
        module = described.norms[place - 1]
        if described.pre_norm:
            return [self.norm(module, norm, x, axes), *inner, residual]
        return [*inner, residual, self.norm(module, norm, total, axes)]

    def multi_head(
        self,
        attention: AttentionDescription,
        name: str,
        inputs: tuple[str, str],
        sides: tuple[str, str],
    ) -> list[Step]:
        """Queries, keys and values; scores, weights and contexts; the output projection."""
        heads = attention.projections
        steps = self.projections(attention, name, inputs, sides)
        suffix = "" if attention.rotation is None else ".rotated"
        queries, keys = (f"{name}.{letter}{suffix}" for letter in "qk")
        part, grid = attention.parts, ("head", *sides)
        inner = list(self.score(part.score, name, f"{name}.scores", (queries, keys), sides))
        inner += self.bias(part.bias, name, queries, sides, inner[-1].name)
        inner.append(self.masked(attention.mask, name, inner[-1].name, sides))
        weights = self.normaliser(part.normaliser, inner[-1].name)
        inner.append(Step(f"{name}.weights", grid, weights))
        stages = tuple(step.name.removeprefix(f"{name}.") for step in inner if step.axes == grid)
        mixed = row_wise.WeightedSum((f"{name}.weights", f"{name}.v"))
        out = row_wise.LinearProjection((f"{name}.joined",), self.linear(heads.out, f"{name}.out"))
        joined = element_wise.ConcatenatedHeads((f"{name}.context",))
        wide = heads.out.in_features != heads.out.out_features
        kind = "cross" if name.endswith(".cross") else STACKS[sides[0]]
        layer, module = int(name.split(".")[1]), self.module_names[id(part)]
        block = AttentionBlock(name, kind, layer, heads.heads, *sides, stages, module)
        self.attentions.append(block)
        return [
            *steps,
            *inner,
            Step(f"{name}.context", ("head", sides[0], "dim"), mixed),
            Step(f"{name}.joined", (sides[0], "attention" if wide else "width"), joined),
            Step(f"{name}.out", (sides[0], "width"), out),
        ]

    def projections(
        self,
        attention: AttentionDescription,
        name: str,
        inputs: tuple[str, str],
        sides: tuple[str, str],
    ) -> list[Step]:
        """Queries, keys and values by head, the first two rotated where the encoding rotates."""
        heads, rotation = attention.projections, attention.rotation
        steps, rotated = [], []
        for letter, module, role in (
            ("q", heads.queries, 0),
            ("k", heads.keys, 1),
            ("v", heads.values, 1),
        ):
            count = heads.heads if letter == "q" else heads.kv_heads
            axes = ("head" if count == heads.heads else "group", sides[role], "dim")
            vectors = f"{name}.{letter}"
            weights = self.linear(module, vectors)
            projection = row_wise.HeadProjection((inputs[role],), weights, count)
            steps.append(Step(vectors, axes, projection))
            if rotation is not None and letter != "v":
                operation = self.rotation(rotation, vectors, sides[role])
                rotated.append(Step(f"{vectors}.rotated", axes, operation))
        return steps + rotated

    def norm(self, norm: nn.Module, name: str, x: str, axes: tuple[str, ...]) -> Step:
        """LayerNorm or RMSNorm."""
        if type(norm) is nn.LayerNorm and len(weights := self.weights(norm)) == 2:
            return Step(name, axes, row_wise.LayerNormalisation((x,), weights, norm.eps))
        if type(norm) is nn.RMSNorm and norm.weight is not None:
            eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
            return Step(name, axes, row_wise.RMSNormalisation((x,), self.parameters(norm), eps))
        raise RegardError(
            f"cannot trace {name}: it is {norm!r}, and the tracer knows LayerNorm with weight and "
            "bias, and RMSNorm with weight"
        )

    def final_norm(self, norm: nn.Module, name: str, x: str, side: str) -> list[Step]:
        """The norm after the last layer of a pre-norm stack."""
        return [] if type(norm) is nn.Identity else [self.norm(norm, name, x, (side, "width"))]


def output_steps() -> list[Step]:
    """From logits to the log-probability and the score of the whole output."""
    return [
        Step("out.logprobs", ("target", "vocabulary"), row_wise.LogProbability(("out.logits",))),
        Step("out.chosen", ("target",), row_wise.ChosenLogProb(("out.logprobs", "tgt.following"))),
        Step("out.total", (), row_wise.SequenceLogProb(("out.chosen",))),
        Step("out.score", (), row_wise.LengthPenalised(("out.total",))),
    ]
