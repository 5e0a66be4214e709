"""record: run a model on one text and record every number by name.

>>> trace = record(regard.load("runs/demo/bundle"), "attention")
>>> trace["dec.0.cross.weights"]                       # (head, query, key)
>>> print(trace.explain("dec.0.cross.weights", (0, 2, 3)))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.answer import Answer
from regard.device import bypass_onednn
from regard.errors import RegardError
from regard.models import Model, eval_mode
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.search import Beam, LengthPenalty, Search
from regard.search.build import search_template
from regard.search.constraints import force
from regard.search.search_batches import length_limits
from regard.teacher_forcing import refuse_reversed
from regard.text import Piece, Tokenizer
from regard.text.template import Template
from regard.trace.attention_edits import Change, SetAttentionRow
from regard.trace.edits import ForceToken, ShufflePositions, edit, edited
from regard.trace.operations.operation import TensorStore
from regard.trace.operations.row_wise import LengthPenalised, SequenceLogProb
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
    max_length: int | None = None,
) -> Trace:
    """Every number that the model computes for a text, with teacher forcing on a target.

    The target is the given one, or the model's own output: of the pipeline's search or of `search`.
    An edited model generates greedily, at most `max_length` tokens; if the only edits are forced
    tokens, a given beam search is used with them.
    """
    for text in (source, "" if target is None else target):
        if not isinstance(text, str):
            raise RegardError(f"text must be a str; got {text!r}")
    changes = tuple(edit(one) for one in edits)
    template = search_template(search, pipeline.bundle.template)
    refuse_reversed(template, "traces")
    source_ids = template.source(pipeline.bundle.source.encode(source.strip()))
    program = edited(program_of(pipeline.model), changes)
    recording = Recording(pipeline, program, changes, source_ids, template)
    forced = {one.step: one.token for one in changes if isinstance(one, ForceToken)}
    vocabulary = len(pipeline.bundle.target)
    for step, token in forced.items():
        if token >= vocabulary:
            raise RegardError(
                f"token {token} forced at step {step} is not in the vocabulary of {vocabulary:,}"
            )
    if target is not None:
        ids = pipeline.bundle.target.encode(target.strip())
        if any(step >= len(ids) for step in forced):
            raise RegardError(
                f"a token is forced at step {max(forced)}; the target has steps 0 to {len(ids) - 1}"
            )
        ids = [forced.get(step, token) for step, token in enumerate(ids)]
    elif isinstance(search, Beam) and changes and len(forced) == len(changes):
        required = force(forced, template.end)
        search = replace(search, constraints=(*search.constraints, required))
        ids = pipeline(source, search).ids
    elif changes:
        ids, end = recording.generate(forced, max_length), template.end
        if late := [step for step, token in forced.items() if step > len(ids) - (token != end)]:
            raise RegardError(
                f"a token is forced at step {min(late)}, but the edited output ends at step "
                f"{len(ids)}; force an earlier step"
            )
    else:
        ids = pipeline(source, search).ids
    penalty = _length_penalty(pipeline, search).divisor(len(ids) + 1)
    recording.run_decoder(ids, penalty)
    _check_rows(changes, recording.store)
    return recording.trace(source, ids)


PROGRAMS: dict[type[Model], Callable[[Any], Program]] = {
    Transformer: transformer_program,
    Recurrent: recurrent_program,
}


def register(model: type[Model], program: Callable[[Any], Program]) -> None:
    """Let `record` trace another class of models; `program` returns the program of such a model."""
    PROGRAMS[model] = program


def program_of(model: Model) -> Program:
    """The program of a model: its computation as named steps."""
    if type(model) not in PROGRAMS:
        known = ", ".join(one.__name__ for one in PROGRAMS)
        raise RegardError(
            f"cannot trace a {type(model).__name__}; there are programs for {known}, and "
            "regard.trace.register adds one"
        )
    return PROGRAMS[type(model)](model)


class Recording:
    """A program run on one source; the encoder is run once, the decoder for any target."""

    def __init__(
        self,
        pipeline: Pipeline,
        program: Program,
        changes: Sequence[Change],
        source_ids: Sequence[int],
        template: Template,
    ) -> None:
        self.pipeline, self.program, self.template = pipeline, program, template
        self.changes, self.source_ids = tuple(changes), list(source_ids)
        weights = {
            name: weight.detach().float().cpu()
            for name, weight in pipeline.model.named_parameters()
        }
        self.store = TensorStore(weights)
        self.store.tensors["src.ids"] = torch.tensor(self.source_ids)
        self.store.tensors["src.positions"] = self.positions(len(self.source_ids))
        Program(program.parts[: program.decoding], 0, ()).run(self.store)

    @property
    def given(self) -> int:
        """The rows at the start that predict a start token, which is given."""
        return len(self.template.start) - 1

    def run_decoder(self, ids: Sequence[int], penalty: float = 1.0) -> Tensor:
        """Run the steps that depend on the target; returns the log-probabilities of next tokens."""
        tensors = self.store.tensors
        read = self.template.decoder_input(ids)
        tensors["tgt.ids"] = torch.tensor(read)
        tensors["tgt.following"] = torch.tensor([*read[1:], self.template.end])
        tensors["tgt.positions"] = self.target_positions(len(read))
        if self.given:
            total = SequenceLogProb(("out.chosen",), (), self.given)
            self.program = self.program.renewed("out.total", total)
        self.program = self.program.renewed(
            "out.score", LengthPenalised(("out.total",), (), penalty)
        )
        self.program.run(self.store, start=self.program.decoding)
        return tensors["out.logprobs"]

    def generate(self, forced: Mapping[int, int], max_length: int | None = None) -> list[int]:
        """The greedy output of the edited model, with some tokens forced."""
        ids: list[int] = []
        length = torch.tensor([len(self.source_ids)])
        limit = int(length_limits(length, **self.pipeline.length_limits)[0])
        while len(ids) < (limit if max_length is None else min(limit, max_length)):
            if len(ids) in forced:
                token = forced[len(ids)]
            else:
                logprobs = self.run_decoder(ids)[-1].clone()
                logprobs[list(self.template.banned)] = -math.inf
                token = int(logprobs.argmax())
            if token == self.template.end:
                break
            ids.append(token)
        return ids

    def positions(self, length: int) -> Tensor:
        """0, 1, 2 …, shuffled if an edit says so."""
        for change in self.changes:
            if isinstance(change, ShufflePositions):
                return torch.randperm(length, generator=torch.Generator().manual_seed(change.seed))
        return torch.arange(length)

    def target_positions(self, length: int) -> Tensor:
        """Positions of the target; shuffled ones keep one order while the target grows."""
        longest = int(self.pipeline.bundle.card.get("longest", {}).get("target", length)) + 1
        return torch.cat([self.positions(longest), torch.arange(longest, max(longest, length))])[
            :length
        ]

    def trace(self, source: str, ids: list[int]) -> Trace:
        """The recorded numbers with the tokens of both sides."""
        bundle, shift = self.pipeline.bundle, len(source) - len(source.lstrip())
        source_pieces = [
            Piece(p.text, p.id, p.start + shift, p.end + shift)
            for p in bundle.source.pieces(source.strip())
        ]
        text, end = bundle.target.decode(ids), len(source.rstrip())
        target_pieces = bundle.target.decode_pieces(ids)
        logps = self.store["out.chosen"][self.given :].tolist()
        score = float(self.store["out.score"])
        answer = Answer(
            source,
            text,
            ids,
            [p.text for p in target_pieces],
            logps,
            score,
            bundle.source.unknown_symbols(source.strip()),
        )
        template = self.template
        first = _special_pieces(bundle.target, template.start, 0)
        last = _special_pieces(bundle.target, [template.end], len(text))
        source_pieces = [
            *_special_pieces(bundle.source, template.source_prefix, shift),
            *source_pieces,
            *_special_pieces(bundle.source, template.source_suffix, end),
        ]
        check = None if self.changes else self.difference(ids)
        return Trace(
            self.pipeline,
            self.program,
            self.store,
            source_pieces,
            [*first, *target_pieces],
            [*first[1:], *target_pieces, *last],
            answer,
            self.changes,
            check,
            template,
        )

    def difference(self, target_ids: Sequence[int]) -> float:
        """The largest difference from the model's teacher-forced logits; raises if it is large."""
        read = self.template.decoder_input(target_ids)
        ids = (torch.tensor(self.source_ids), torch.tensor(read))
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


def _special_pieces(tokenizer: Tokenizer, ids: Sequence[int], place: int) -> list[Piece]:
    """Special tokens, which cover no characters."""
    return [Piece(tokenizer.label(id), id, place, place) for id in ids]


def _length_penalty(pipeline: Pipeline, search: Search | None) -> LengthPenalty:
    """The length penalty that ranks outputs."""
    used = search or pipeline.default_search
    return used.length_penalty if isinstance(used, Beam) else LengthPenalty()


def _check_rows(changes: Iterable[Change], store: TensorStore) -> None:
    """Raise if a row that was set by hand does not exist in this trace."""
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
