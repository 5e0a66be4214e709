"""The recurrent encoder–decoder as a program: every step from ids to logits, by position."""

from __future__ import annotations

from torch import nn

from regard.attention import Attention
from regard.errors import RegardError
from regard.models.parts import Embedding, Output
from regard.models.recurrent import Recurrent, SourceAttention
from regard.trace.operations import element_wise, gates, row_wise
from regard.trace.operations.operation import Operation
from regard.trace.program import AttentionBlock, Program, ProgramBuilder, Recurrence, Step
from regard.trace.transformer_program import output_steps

GATES: dict[type[nn.RNNBase], str] = {nn.GRU: "rzn", nn.LSTM: "ifgo"}  # as torch stacks them


def recurrent_program(model: Recurrent) -> Program:
    """Every step of a forward pass, from ids to logits."""
    return RecurrentBuilder(model).program()


class RecurrentBuilder(ProgramBuilder):
    """Builds the steps of a recurrent encoder–decoder."""

    model: Recurrent

    def program(self) -> Program:
        """The encoder's steps, then those that depend on the target."""
        model = self.model
        self.check()
        encoder = self.encoder()
        decoder: list[Step | Recurrence] = [
            self.embedding("tgt", "target"),
            Recurrence(tuple(self.decoder()), "tgt.ids"),
        ]
        found = "enc.summary" if model.attention is None else "attn.joined"
        mixed = row_wise.LinearProjection(("out.joined",), self.linear(model.readout, "out.mixed"))
        table = (self.parameter_names[id(model.output.table)],)
        logits = row_wise.OutputProjection(("out.readout",), table)
        decoder += [
            Step("out.joined", ("target", "width"), element_wise.Concatenation(("dec.h", found))),
            Step("out.mixed", ("target", "width"), mixed),
            Step("out.readout", ("target", "width"), element_wise.TanhActivation(("out.mixed",))),
            Step("out.logits", ("target", "vocabulary"), logits),
            *output_steps(),
        ]
        return Program((*encoder, *decoder), len(encoder), tuple(self.attentions))

    def check(self) -> None:
        """Raise if a part of the model is not one that the tracer knows."""
        model = self.model
        for name, module, kind in (
            ("the source embedding", model.source, Embedding),
            ("the target embedding", model.target, Embedding),
            ("the output projection", model.output, Output),
        ):
            self.require(module, kind, name)
        for name, cell in (("the encoder", model.encoder), ("the decoder", model.decoder)):
            if type(cell) not in GATES:
                raise RegardError(
                    f"cannot trace {name}: it is a {type(cell).__name__}, and the tracer knows "
                    "GRU and LSTM"
                )
        if model.attention is not None:
            self.require(model.attention, SourceAttention, "attn")
            self.require(model.attention.attention, Attention, "attn's attention")
            if (bias := model.attention.attention.bias) is not None:
                raise RegardError(
                    f"cannot trace attn: it has the bias {type(bias).__name__}, and a recurrent "
                    "decoder attends without positions; remove the bias"
                )

    def encoder(self) -> list[Step | Recurrence]:
        """Both directions of every layer, the summary, the decoder's first state, the keys."""
        model = self.model
        layers = model.encoder.num_layers
        steps: list[Step | Recurrence] = [self.embedding("src", "source")]
        x = "src.embed"
        for i in range(layers):
            for backward in (False, True):
                name = f"enc.{i}.{'backward' if backward else 'forward'}"
                suffix = f"l{i}_reverse" if backward else f"l{i}"
                steps.append(self.input_gates(model.encoder, suffix, name, x, "source"))
                cell = tuple(self.cell(model.encoder, suffix, name, "source"))
                steps.append(Recurrence(cell, "src.ids", backward))
            x = f"enc.{i}.h"
            both = element_wise.Concatenation((f"enc.{i}.forward.h", f"enc.{i}.backward.h"))
            steps.append(Step(x, ("source", "width"), both))
        last = (f"enc.{layers - 1}.forward.h", f"enc.{layers - 1}.backward.h")
        first = row_wise.LinearProjection(("enc.summary",), self.linear(model.initial, "dec.first"))
        return [
            *steps,
            Step("enc.h", ("source", "width"), element_wise.Copy((x,))),
            Step("enc.summary", ("one", "width"), gates.EncoderSummary(last)),
            Step("dec.first", ("one", "width"), first),
            Step("dec.start", ("one", "width"), element_wise.TanhActivation(("dec.first",))),
            *self.keys(),
        ]

    def embedding(self, short: str, side: str) -> Step:
        """E[id] · √width."""
        embedding: Embedding = getattr(self.model, side)
        table = (self.parameter_names[id(embedding.table)],)
        lookup = element_wise.TableLookup((f"{short}.ids",), table, embedding.scale)
        return Step(f"{short}.embed", (side, "width"), lookup)

    def keys(self) -> list[Step]:
        """The keys and values of the source, computed once for all steps."""
        attention = self.model.attention
        if attention is None:
            return []
        axes = ("head", "source", "width")
        return [
            Step("attn.key", axes, self.head(attention.keys, "attn.key", "enc.h")),
            Step("attn.value", axes, element_wise.SingleHead(("enc.h",))),
        ]

    def head(self, module: nn.Module, name: str, x: str) -> Operation:
        """Vectors as one head, projected or as they are."""
        if type(module) is nn.Identity:
            return element_wise.SingleHead((x,))
        return row_wise.HeadProjection((x,), self.linear(module, name), 1)

    def decoder(self) -> list[Step]:
        """One position: attention before the cell (Bahdanau) or after it (Luong)."""
        model, layers = self.model, self.model.decoder.num_layers
        steps, x = [], "tgt.embed"
        if model.attention is not None and model.attends_before:
            steps += [self.previous(layers - 1, "attn.state"), *self.attention("attn.state")]
        if model.attention is None or model.attends_before:
            x = "dec.input"
            found = "enc.summary" if model.attention is None else "attn.joined"
            joined = element_wise.Concatenation(("tgt.embed", found))
            steps.append(Step(x, ("target", "width"), joined))
        for i in range(layers):
            steps.append(self.input_gates(model.decoder, f"l{i}", f"dec.{i}", x, "target"))
            steps += self.cell(model.decoder, f"l{i}", f"dec.{i}", "target", layer=i)
            x = f"dec.{i}.h"
        steps.append(Step("dec.h", ("target", "width"), element_wise.Copy((x,))))
        if model.attention is not None and not model.attends_before:
            steps += self.attention("dec.h")
        return steps

    def attention(self, state: str) -> list[Step]:
        """Query, energies (scores), weights and context."""
        attention = self.model.attention
        assert attention is not None
        part, sides = attention.attention, ("target", "source")
        query = Step(
            "attn.query",
            ("head", "target", "width"),
            self.head(attention.queries, "attn.query", state),
        )
        scores = list(
            self.score(part.score, "attn", "attn.energy", ("attn.query", "attn.key"), sides)
        )
        weights = self.normaliser(part.normaliser, "attn.energy")
        grid, module = ("head", *sides), self.module_names[id(part)]
        stages = (*(s.name.removeprefix("attn.") for s in scores if s.axes == grid), "weights")
        self.attentions.append(AttentionBlock("attn", "cross", 0, 1, *sides, stages, module))
        context = row_wise.WeightedSum(("attn.weights", "attn.value"))
        joined = element_wise.ConcatenatedHeads(("attn.context",))
        return [
            query,
            *scores,
            Step("attn.weights", grid, weights),
            Step("attn.context", ("head", "target", "width"), context),
            Step("attn.joined", ("target", "width"), joined),
        ]

    def previous(self, layer: int, name: str) -> Step:
        """A decoder layer's previous state; the first comes from the source."""
        width = self.model.decoder.hidden_size
        inputs = (f"dec.{layer}.h", "dec.start")
        operation = gates.PreviousState(inputs, (), width, False, layer * width)
        return Step(name, ("target", "width"), operation)

    def cell(
        self, module: nn.RNNBase, suffix: str, name: str, side: str, *, layer: int | None = None
    ) -> list[Step]:
        """One layer of a cell at one position, given its input gates (`<name>.ih`)."""
        backward, width = suffix.endswith("_reverse"), module.hidden_size
        axes, letters = (side, "width"), GATES[type(module)]
        start = (f"{name}.h",) if layer is None else (f"{name}.h", "dec.start")
        before, sums = f"{name}.before", (f"{name}.ih", f"{name}.hh")
        previous = gates.PreviousState(start, (), width, backward, (layer or 0) * width)
        hidden = row_wise.LinearProjection((before,), self.stacked(module, "hh", suffix))
        steps = [Step(before, axes, previous), Step(sums[1], (side, "gates"), hidden)]

        def gate(letter: str, kind: type[gates.SigmoidGate] = gates.SigmoidGate) -> Step:
            return Step(f"{name}.{letter}", axes, kind(sums, (), letters.index(letter), width))

        if type(module) is nn.GRU:
            inputs = (*sums, f"{name}.r")
            candidate = gates.GruCandidate(inputs, (), letters.index("n"), width)
            steps += [gate("r"), gate("z"), Step(f"{name}.n", axes, candidate)]
            gru = gates.GruState((f"{name}.z", f"{name}.n", before))
            return [*steps, Step(f"{name}.h", axes, gru)]
        memory = f"{name}.memory"
        steps.append(Step(memory, axes, gates.PreviousState((f"{name}.c",), (), width, backward)))
        steps += [gate("i"), gate("f"), gate("g", gates.CellCandidate), gate("o")]
        cell = gates.LstmCell((f"{name}.f", memory, f"{name}.i", f"{name}.g"))
        state = gates.LstmState((f"{name}.o", f"{name}.c"))
        return [*steps, Step(f"{name}.c", axes, cell), Step(f"{name}.h", axes, state)]

    def input_gates(self, module: nn.RNNBase, suffix: str, name: str, x: str, side: str) -> Step:
        """What the input contributes to all gates of a layer."""
        projection = row_wise.LinearProjection((x,), self.stacked(module, "ih", suffix))
        return Step(f"{name}.ih", (side, "gates"), projection)

    def stacked(self, module: nn.RNNBase, kind: str, suffix: str) -> tuple[str, str]:
        """The names of the weight and the bias in which torch stacks the gates."""
        weight, bias = (
            self.parameter_names[id(getattr(module, f"{what}_{kind}_{suffix}"))]
            for what in ("weight", "bias")
        )
        return weight, bias
