"""record: run a model on one sentence and keep every number, by name.

>>> trace = record(regard.load("runs/demo/bundle"), "attention")
>>> trace["dec.0.cross.weights"]                       # (head, query, key)
>>> print(trace.explain("dec.0.cross.weights", (0, 2, 3)))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.answer import Answer
from regard.errors import RegardError
from regard.models import Model, eval_mode
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer
from regard.onednn import bypass_onednn
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.search import Beam, LengthPenalty, Search
from regard.search.length_batching import length_limits
from regard.text import BEGIN, END, Piece
from regard.trace.attention_edits import Change, SetAttentionRow
from regard.trace.edits import ForceToken, ShufflePositions, edit, edited
from regard.trace.operations.operation import TensorStore
from regard.trace.operations.row_wise import LengthPenalised
from regard.trace.program import Program
from regard.trace.recurrent_program import recurrent_program
from regard.trace.trace import Trace
from regard.trace.transformer_program import transformer_program


@torch.no_grad()
@bypass_onednn()
def record(
    pipeline: Pipeline,
    source: str,
    target: str | None = None,
    *,
    search: Search | None = None,
    edits: Iterable[Mapping[str, Any] | Change] = (),
    longest: int | None = None,
) -> Trace:
    """Every number of a sentence's way through the model, for a given target or for the model's own
    answer.

    HiddenKey a target the answer is searched for as usual (or by `search`). An edited model answers
    greedily, with at most `longest` tokens if that is given.
    """
    for text in (source, "" if target is None else target):
        if not isinstance(text, str):
            raise RegardError(f"text must be a str; got {text!r}")
    changes = tuple(edit(one) for one in edits)
    asked = [*pipeline.bundle.source.encode(source.strip()), END]
    program = edited(program_of(pipeline.model), changes)
    recording = Recording(pipeline, program, changes, asked)
    forced = {one.step: one.token for one in changes if isinstance(one, ForceToken)}
    vocabulary = len(pipeline.bundle.target)
    for step, token in forced.items():
        if token >= vocabulary:
            raise RegardError(
                f"token {token} forced at step {step} is not in the vocabulary of {vocabulary:,}"
            )
    if target is not None:
        said = pipeline.bundle.target.encode(target.strip())
        if any(step >= len(said) for step in forced):
            raise RegardError(
                f"a token is forced at step {max(forced)}; the target has steps 0 to "
                f"{len(said) - 1}"
            )
        said = [forced.get(step, token) for step, token in enumerate(said)]
    elif changes:
        said = recording.decode(forced, longest)
        if late := [step for step, token in forced.items() if step > len(said) - (token != END)]:
            raise RegardError(
                f"a token is forced at step {min(late)}, and the edited answer ends at step "
                f"{len(said)}; force an "
                f"earlier step"
            )
    else:
        said = pipeline(source, search).ids
    penalty = _length(pipeline, search).divisor(len(said) + 1)
    recording.see(said, penalty)
    _fits(changes, recording.store)
    return recording.trace(source, said)


PROGRAMS: dict[type[Model], Callable[[Any], Program]] = {
    Transformer: transformer_program,
    Recurrent: recurrent_program,
}


def register(model: type[Model], program: Callable[[Any], Program]) -> None:
    """Let `record` trace another class of models, by a function that gives its program."""
    PROGRAMS[model] = program


def program_of(model: Model) -> Program:
    """A model as a program of named steps."""
    if type(model) not in PROGRAMS:
        known = ", ".join(one.__name__ for one in PROGRAMS)
        raise RegardError(
            f"cannot trace a {type(model).__name__}; there are programs for {known}, and "
            "regard.trace.register adds one"
        )
    return PROGRAMS[type(model)](model)


class Recording:
    """A program under way on one source."""

    def __init__(
        self, pipeline: Pipeline, program: Program, changes: Sequence[Change], asked: Sequence[int]
    ) -> None:
        self.pipeline, self.program, self.changes, self.asked = (
            pipeline,
            program,
            tuple(changes),
            list(asked),
        )
        weights = {
            name: weight.detach().float().cpu()
            for name, weight in pipeline.model.named_parameters()
        }
        self.store = TensorStore(weights)
        self.store.tensors["src.ids"] = torch.tensor(self.asked)
        self.store.tensors["src.positions"] = self.positions(len(self.asked))
        Program(program.parts[: program.decoding], 0, ()).run(self.store)

    def see(self, said: Sequence[int], penalty: float = 1.0) -> Tensor:
        """Run the part that depends on the target; gives the log-probabilities of what follows."""
        tensors = self.store.tensors
        tensors["tgt.ids"] = torch.tensor([BEGIN, *said])
        tensors["tgt.following"] = torch.tensor([*said, END])
        tensors["tgt.positions"] = self.target_positions(len(said) + 1)
        self.program = self.program.renewed(
            "out.score", LengthPenalised(("out.total",), (), penalty)
        )
        self.program.run(self.store, start=self.program.decoding)
        return tensors["out.logprobs"]

    def decode(self, forced: Mapping[int, int], longest: int | None = None) -> list[int]:
        """The edited model's own answer, greedily, with some tokens forced."""
        said: list[int] = []
        most = int(length_limits(torch.tensor([len(self.asked)]), **self.pipeline.length_limits)[0])
        while len(said) < (most if longest is None else min(most, longest)):
            token = forced[len(said)] if len(said) in forced else int(self.see(said)[-1].argmax())
            if token == END:
                break
            said.append(token)
        return said

    def positions(self, length: int) -> Tensor:
        """0, 1, 2 …, or in another order."""
        for change in self.changes:
            if isinstance(change, ShufflePositions):
                return torch.randperm(length, generator=torch.Generator().manual_seed(change.seed))
        return torch.arange(length)

    def target_positions(self, length: int) -> Tensor:
        """Shuffled positions of a growing target: one order for all its lengths, up to the longest
        trained on.
        """
        longest = int(self.pipeline.bundle.card.get("longest", {}).get("target", length)) + 1
        return torch.cat([self.positions(longest), torch.arange(longest, max(longest, length))])[
            :length
        ]

    def trace(self, source: str, said: list[int]) -> Trace:
        """What was seen, with its words."""
        bundle, shift = self.pipeline.bundle, len(source) - len(source.lstrip())
        read = [
            Piece(p.text, p.id, p.start + shift, p.end + shift)
            for p in bundle.source.pieces(source.strip())
        ]
        text, end = bundle.target.decode(said), len(source.rstrip())
        told = bundle.target.decode_pieces(said)
        logps = self.store["out.chosen"].tolist()
        score = float(self.store["out.score"])
        answer = Answer(
            source,
            text,
            said,
            [p.text for p in told],
            logps,
            score,
            bundle.source.unknown_symbols(source.strip()),
        )
        last = Piece(bundle.target.label(END), END, len(text), len(text))
        first = Piece(bundle.target.label(BEGIN), BEGIN, 0, 0)
        asked = [*read, Piece(bundle.source.label(END), END, end, end)]
        check = None if self.changes else self.difference(said)
        return Trace(
            self.pipeline,
            self.program,
            self.store,
            asked,
            [first, *told],
            [*told, last],
            answer,
            self.changes,
            check,
        )

    def difference(self, said: Sequence[int]) -> float:
        """The largest difference from the model's teacher-forced logits; raises if it is large."""
        ids = (torch.tensor(self.asked), torch.tensor([BEGIN, *said]))
        source, prefix = (Ragged.of([one]).to(self.pipeline.device) for one in ids)
        model, traced = self.pipeline.model, self.store["out.logits"]
        with eval_mode(model):
            logits = model(source, prefix).values.float().cpu()
        both = logits.isnan() & traced.isnan()
        difference = float((logits - traced).abs().masked_fill(both, 0).nan_to_num(math.inf).max())
        lowest = max(torch.finfo(weight.dtype).eps for weight in model.parameters())
        limit = max(1e-3, 32 * lowest) * max(1.0, float(logits.nan_to_num().abs().max()))
        if difference > limit:
            raise RegardError(
                f"this trace does not follow the model: its logits differ by {difference:.3g} from "
                f"those of the {type(model).__name__} (at most {limit:.3g} is rounding); a part of "
                "the model computes something other than its class"
            )
        return difference


def _length(pipeline: Pipeline, search: Search | None) -> LengthPenalty:
    """The length penalty answers are ranked by."""
    used = search or pipeline.default_search
    return used.length_penalty if isinstance(used, Beam) else LengthPenalty()


def _fits(changes: Iterable[Change], store: TensorStore) -> None:
    """Rows set by hand must be rows of this sentence."""
    for change in changes:
        if isinstance(change, SetAttentionRow):
            _, queries, keys = store[f"{change.attention}.weights"].shape
            if change.query >= queries:
                raise RegardError(
                    f"{change.attention} has rows 0 to {queries - 1}; got {change.query}"
                )
            if len(change.weights) != keys:
                raise RegardError(
                    f"a row of {change.attention} has {keys} weights here; got "
                    f"{len(change.weights)}"
                )
