"""The recurrent encoder–decoder written down as a program of named steps, position by position."""

from __future__ import annotations

from torch import nn

from regard.attention.scores import Additive, General
from regard.models.recurrent import Recurrent
from regard.trace.operations import element_wise as single
from regard.trace.operations import gates
from regard.trace.operations import matmul as sums
from regard.trace.operations import row_wise as shares
from regard.trace.operations.operation import Operation
from regard.trace.program import Attended, Program, Step, Walk
from regard.trace.transformer_program import ending

GATES = {"gru": "rzn", "lstm": "ifgo"}  # in the order in which torch stacks them


def program(model: Recurrent) -> Program:
    """Every step of a pass through the model, from ids to logits."""
    return Writer(model).program()


class Writer:
    """Writes the steps down."""

    def __init__(self, model: Recurrent) -> None:
        self.model, self.settings = model, model.settings
        self.named = {id(weight): name for name, weight in model.named_parameters()}

    def program(self) -> Program:
        """The encoder's steps, then those that depend on the target."""
        model, last = self.model, self.settings.encoder_layers - 1
        before: list[Step | Walk] = [self.embedding("src", "source")]
        x = "src.embed"
        for i in range(self.settings.encoder_layers):
            for backward in (False, True):
                name = f"enc.{i}.{'backward' if backward else 'forward'}"
                suffix = f"l{i}_reverse" if backward else f"l{i}"
                before.append(self.seen(model.encoder, suffix, name, x, "source"))
                before.append(Walk(tuple(self.cell(model.encoder, suffix, name, "source")), "src.ids", backward))
            x = f"enc.{i}.h"
            both = single.Concat((f"enc.{i}.forward.h", f"enc.{i}.backward.h"))
            before.append(Step(x, ("source", "width"), both))
        before += [
            Step("enc.h", ("source", "width"), single.Same((x,))),
            Step("enc.summary", ("one", "width"), gates.Ends((f"enc.{last}.forward.h", f"enc.{last}.backward.h"))),
            Step("dec.first", ("one", "width"), sums.Linear(("enc.summary",), self.weights(model.initial))),
            Step("dec.start", ("one", "width"), single.Tanh(("dec.first",))),
            *self.known(),
        ]
        after: list[Step | Walk] = [self.embedding("tgt", "target"), Walk(tuple(self.decoder()), "tgt.ids")]
        found = "enc.summary" if model.attention is None else "attn.joined"
        table = (self.named[id(model.output.table)],)
        after += [
            Step("out.joined", ("target", "width"), single.Concat(("dec.h", found))),
            Step("out.mixed", ("target", "width"), sums.Linear(("out.joined",), self.weights(model.readout))),
            Step("out.readout", ("target", "width"), single.Tanh(("out.mixed",))),
            Step("out.logits", ("target", "vocabulary"), sums.Logits(("out.readout",), table)),
            *ending(),
        ]
        attentions = (
            ()
            if model.attention is None
            else (Attended("attn", "cross", 0, 1, "target", "source", ("energy", "weights")),)
        )
        return Program((*before, *after), len(before), attentions)

    def weights(self, module: nn.Module) -> tuple[str, ...]:
        """The names of a layer's weight and bias."""
        return tuple(self.named[id(p)] for p in (module.weight, getattr(module, "bias", None)) if p is not None)

    def embedding(self, short: str, side: str) -> Step:
        """E[id] · √width."""
        embedding = getattr(self.model, side)
        look = single.Look((f"{short}.ids",), (self.named[id(embedding.table)],), embedding.scale)
        return Step(f"{short}.embed", (side, "width"), look)

    def known(self) -> list[Step]:
        """The keys and values of the source, once for all steps."""
        look = self.model.attention
        if look is None:
            return []
        keys: Operation = single.OneHead(("enc.h",))
        if isinstance(look.keys, nn.Linear):
            keys = sums.Heads(("enc.h",), self.weights(look.keys), 1)
        return [
            Step("attn.key", ("head", "source", "width"), keys),
            Step("attn.value", ("head", "source", "width"), single.OneHead(("enc.h",))),
        ]

    def decoder(self) -> list[Step]:
        """One position: Bahdanau looks before the cell turns, Luong after it."""
        model, top = self.model, self.settings.decoder_layers - 1
        steps, x = [], "tgt.embed"
        if model.attention is not None and model.attends_before:
            steps += [self.before(top, "attn.state"), *self.attention("attn.state")]
        if model.attention is None or model.attends_before:
            x = "dec.input"
            found = "enc.summary" if model.attention is None else "attn.joined"
            steps.append(Step(x, ("target", "width"), single.Concat(("tgt.embed", found))))
        for i in range(self.settings.decoder_layers):
            steps.append(self.seen(model.decoder, f"l{i}", f"dec.{i}", x, "target"))
            steps += self.cell(model.decoder, f"l{i}", f"dec.{i}", "target", layer=i)
            x = f"dec.{i}.h"
        steps.append(Step("dec.h", ("target", "width"), single.Same((x,))))
        if model.attention is not None and not model.attends_before:
            steps += self.attention("dec.h")
        return steps

    def attention(self, state: str) -> list[Step]:
        """Query, energies, weights and context."""
        look = self.model.attention
        assert look is not None
        score, grid = look.attention.score, ("head", "target", "source")
        asked: Operation = single.OneHead((state,))
        if isinstance(look.queries, nn.Linear):
            asked = sums.Heads((state,), self.weights(look.queries), 1)
        steps, query = [Step("attn.query", ("head", "target", "width"), asked)], "attn.query"
        if isinstance(score, General):
            mapped = sums.Mapped((query,), (self.named[id(look.attention.score.weight)],))
            steps.append(Step("attn.mapped", ("head", "target", "width"), mapped))
            query = "attn.mapped"
        energy: Operation = sums.Dots((query, "attn.key"))
        if isinstance(score, Additive):
            energy = sums.Energy((query, "attn.key"), (self.named[id(look.attention.score.v)],))
        return [
            *steps,
            Step("attn.energy", grid, energy),
            Step("attn.weights", grid, shares.Softmax(("attn.energy",))),
            Step("attn.context", ("head", "target", "width"), sums.Mix(("attn.weights", "attn.value"))),
            Step("attn.joined", ("target", "width"), single.Join(("attn.context",))),
        ]

    def before(self, layer: int, name: str) -> Step:
        """A decoder layer's state of the step before; the first comes from the source."""
        width = self.settings.width
        operation = gates.Before((f"dec.{layer}.h", "dec.start"), (), width, False, layer * width)
        return Step(name, ("target", "width"), operation)

    def cell(self, module: nn.RNNBase, suffix: str, name: str, side: str, *, layer: int | None = None) -> list[Step]:
        """One layer of a cell at one position, given what it sees there (`<name>.seen`): its gates and its state."""
        backward, width = suffix.endswith("_reverse"), module.hidden_size
        axes, letters = (side, "width"), GATES[self.settings.cell]
        start = (f"{name}.h",) if layer is None else (f"{name}.h", "dec.start")
        before = f"{name}.before"
        sums_ = (f"{name}.seen", f"{name}.kept")
        steps = [
            Step(before, axes, gates.Before(start, (), width, backward, (layer or 0) * width)),
            Step(sums_[1], (side, "gates"), sums.Linear((before,), self.stacked(module, "hh", suffix))),
        ]

        def gate(letter: str, kind: type[gates.Gate] = gates.Gate) -> Step:
            return Step(f"{name}.{letter}", axes, kind(sums_, (), letters.index(letter), width))

        if self.settings.cell == "gru":
            candidate = gates.Candidate((*sums_, f"{name}.r"), (), letters.index("n"), width)
            new = gates.Blend((f"{name}.z", f"{name}.n", before))
            return [*steps, gate("r"), gate("z"), Step(f"{name}.n", axes, candidate), Step(f"{name}.h", axes, new)]
        memory = f"{name}.memory"
        steps.append(Step(memory, axes, gates.Before((f"{name}.c",), (), width, backward)))
        steps += [gate("i"), gate("f"), gate("g", gates.Entry), gate("o")]
        held = gates.Cell((f"{name}.f", memory, f"{name}.i", f"{name}.g"))
        return [*steps, Step(f"{name}.c", axes, held), Step(f"{name}.h", axes, gates.Shown((f"{name}.o", f"{name}.c")))]

    def seen(self, module: nn.RNNBase, suffix: str, name: str, x: str, side: str) -> Step:
        """What the input brings to all gates of a layer."""
        return Step(f"{name}.seen", (side, "gates"), sums.Linear((x,), self.stacked(module, "ih", suffix)))

    def stacked(self, module: nn.RNNBase, kind: str, suffix: str) -> tuple[str, str]:
        """The names of the weights and biases in which torch stacks the gates."""
        weight, bias = (self.named[id(getattr(module, f"{what}_{kind}_{suffix}"))] for what in ("weight", "bias"))
        return weight, bias
