"""A film on probe sentences: what each snapshot of a run computes for a few texts, and markers.

Each probe is scored on the output of the finished model (teacher forcing), so that all frames have
the same tokens. A frame has the weights of every attention and the most probable next tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.bundle.film_files import (
    FilmError,
    Snapshot,
    find_film,
    list_snapshots,
    read_weights,
)
from regard.loading import load
from regard.models import Model, eval_mode
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.teacher_forcing import attention_maps
from regard.trace.attention_analysis import bits
from regard.trace.head_patterns import becomes, pattern_scores, strongest
from regard.trace.record import program_of

TOP = 20  # most probable next tokens of each step
MOST_PROBES = 4  # texts of a card

Arrays = dict[str, Tensor]


@dataclass(frozen=True)
class Probe:
    """A text and the output that all snapshots are scored on."""

    source: str
    target: str


@dataclass(frozen=True)
class ProbeFilm:
    """Frames of some probes: for each, arrays by name with the snapshots as their first axis.

    The last frame is that of the finished model; its step is None, and so is its loss.
    """

    steps: list[int | None]
    losses: list[float | None]
    probes: list[Probe]
    frames: list[Arrays]
    kinds: dict[str, str]  # of the attentions by name: encoder, decoder or cross

    def frame(self, probe: int, step: int | None) -> Arrays:
        """The arrays of one probe at one step."""
        at = self.steps.index(step)
        return {name: stack[at] for name, stack in self.frames[probe].items()}


def snapshot_model(model: Model, snapshot: Snapshot) -> Model:
    """A copy of the model with the weights of a snapshot."""
    copy = deepcopy(model).float()
    weights, own = read_weights(snapshot), dict(copy.named_parameters())
    if {name: one.shape for name, one in weights.items()} != {
        name: one.shape for name, one in own.items()
    }:
        raise FilmError(
            f"{str(snapshot.path)!r} belongs to another model; remove the film, or move it to its "
            "own bundle"
        )
    with torch.no_grad():
        for name, weight in weights.items():
            own[name].copy_(weight)
    return copy.eval()


def with_snapshot(pipeline: Pipeline, snapshot: Snapshot) -> Pipeline:
    """A pipeline that computes with the weights of a snapshot."""
    model = snapshot_model(pipeline.model, snapshot)
    return Pipeline(pipeline.bundle.with_model(model), long="allow")


def copied(pipeline: Pipeline) -> Pipeline:
    """A pipeline with its own copy of the model."""
    return Pipeline(pipeline.bundle.with_model(deepcopy(pipeline.model).eval()), long="allow")


def load_snapshot(folder: str | os.PathLike[str], step: int) -> Pipeline:
    """The pipeline of a bundle as it was after a step of training: `load_snapshot("runs/x", 900)`.

    The run must have recorded a film (train.film) with a snapshot of this step.
    """
    pipeline = load(folder, device="cpu", long="allow")
    assert pipeline.bundle.folder is not None
    found = find_film(pipeline.bundle.folder.resolve())
    snapshots = {one.step: one for one in list_snapshots(found)} if found else {}
    if step not in snapshots:
        steps = ", ".join(map(str, snapshots)) or "none"
        raise FilmError(f"{str(folder)!r} has no snapshot of step {step}; there are: {steps:.300}")
    return with_snapshot(pipeline, snapshots[step])


def example_texts(card: Mapping[str, Any]) -> list[str]:
    """The texts of a card: its example, its examples and its held-out samples."""
    examples, samples = card.get("examples", []), card.get("samples", [])
    texts = [card.get("example", ""), *examples, *(one[0] for one in samples if one)]
    return list(dict.fromkeys(one for one in texts if isinstance(one, str) and one))[:MOST_PROBES]


def film_of_probes(
    pipeline: Pipeline,
    snapshots: Sequence[Snapshot],
    texts: Iterable[str],
    progress: Callable[[int], None] = lambda count: None,
) -> ProbeFilm:
    """Run every snapshot on some texts, each scored on the finished model's greedy output."""
    greedy = pipeline.search(beam=1)
    probes = [Probe(text, pipeline(text, greedy).text) for text in texts]
    attentions = program_of(pipeline.model).attentions
    names = {one.module: f"{one.name}.weights" for one in attentions}
    frames: list[list[Arrays]] = [[] for _ in probes]
    for count, snapshot in enumerate([*snapshots, None]):
        model = pipeline.model if snapshot is None else snapshot_model(pipeline.model, snapshot)
        for probe, found in zip(probes, frames, strict=True):
            found.append(_frame(pipeline, model, probe, names))
        progress(count + 1)
    stacked = [
        {name: torch.stack([frame[name] for frame in found]) for name in found[0]}
        for found in frames
    ]
    steps = [*(one.step for one in snapshots), None]
    losses = [*(one.loss for one in snapshots), None]
    kinds = {one.name: one.kind for one in attentions}
    return ProbeFilm(steps, losses, probes, stacked, kinds)


@torch.no_grad()
def _frame(pipeline: Pipeline, model: Model, probe: Probe, names: dict[str, str]) -> Arrays:
    bundle, template = pipeline.bundle, pipeline.bundle.template
    source = bundle.source.encode(probe.source.strip())
    target = bundle.target.encode(probe.target.strip())
    weights = attention_maps(model, source, target, template)
    arrays = {names[module]: one.float().cpu() for module, one in weights.items()}
    read = template.decoder_input(target)
    inputs = torch.tensor(template.source(source)), torch.tensor(read)
    device = next(model.parameters()).device
    with eval_mode(model):
        logits = model(*(Ragged.of([one]).to(device) for one in inputs)).values.float().cpu()
    logprobs = logits.log_softmax(-1)
    following = torch.tensor([*read[1:], template.end])
    top = logprobs.topk(min(TOP, logprobs.shape[1]))
    chosen = logprobs.gather(1, following[:, None])[:, 0]
    entropy = bits(logprobs.exp())
    counted = chosen[len(template.start) - 1 :]
    arrays |= {
        "out.top.ids": top.indices,
        "out.top.logprobs": top.values,
        "out.chosen": chosen,
        "out.entropy": entropy,
    }
    return arrays | {"out.total": counted.sum(), "out.score": counted.sum()}


def markers(film: ProbeFilm) -> list[dict[str, Any]]:
    """The events of a film by step: when a head gets its pattern, when an output becomes right.

    A head becomes, say, diagonal at the first snapshot from which on its score, averaged over the
    probes, is at least 0.5 (`regard.trace.head_patterns`). Only the strongest pattern of the
    finished head counts. An output becomes right at the first snapshot from which on every next
    token of the finished model's output is the most probable one.
    """
    found = []
    for attention, kind in film.kinds.items():
        scores = _mean_scores(film, f"{attention}.weights", kind)
        finished = strongest({pattern: one[-1] for pattern, one in scores.items()})
        for head, (pattern, _) in enumerate(finished):
            at = becomes(scores[pattern][:, head].tolist())
            if at is not None:
                event = {"kind": "head", "attention": attention, "head": head, "pattern": pattern}
                found.append((at, event))
    for number, arrays in enumerate(film.frames):
        right = arrays["out.top.logprobs"][..., 0] <= arrays["out.chosen"]
        at = becomes(right.all(1).float().tolist())
        if at is not None:
            found.append((at, {"kind": "output", "probe": number}))
    found.sort(key=lambda pair: pair[0])
    return [{"step": film.steps[at], **event} for at, event in found]


def _mean_scores(film: ProbeFilm, name: str, kind: str) -> dict[str, Tensor]:
    """The score of each pattern (snapshot, head), averaged over the probes."""
    every = [[pattern_scores(weights, kind) for weights in arrays[name]] for arrays in film.frames]
    patterns = every[0][0]
    return {
        pattern: torch.stack(
            [torch.stack([one[pattern] for one in probe]) for probe in every]
        ).mean(0)
        for pattern in patterns
    }
