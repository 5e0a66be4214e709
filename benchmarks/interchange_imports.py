"""Imported models against the originals in `transformers`: logits, greedy and beam outputs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from regard.bundle import Bundle
from regard.hub.import_verification import can_use_cache
from regard.inference import inference_model, search_all
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.search import Beam, Greedy, LengthPenalty
from regard.text.template import Template

Ids = list[int]
MAX_LENGTH = 20  # tokens of an output
MAX_SOURCE = 16


@dataclass(frozen=True)
class OutputCounts:
    """Outputs of one search: how many differ from the original's, how many were close calls, which
    rounding may decide, and the number of their tokens."""

    outputs: int
    different: int
    close: int
    tokens: int


def random_sources(bundle: Bundle, count: int, seed: int = 1) -> list[Ids]:
    """Random sources without special tokens, except where the vocabulary has no others."""
    template, size = bundle.template, len(bundle.source)
    special = {*template.banned, *template.start, template.end, *template.source_prefix}
    usable = [id for id in range(size) if id not in special] or [template.end]
    draw = random.Random(seed)
    return [draw.choices(usable, k=draw.randint(1, MAX_SOURCE)) for _ in range(count)]


@torch.inference_mode()
def largest_difference(bundle: Bundle, original: Any, sources: Sequence[Ids]) -> float:
    """The largest difference of any logit, for random targets."""
    template, model, found = bundle.template, bundle.model, 0.0
    draw, size = random.Random(2), len(bundle.target)
    usable = [id for id in range(size) if id not in template.banned]
    for ids in sources:
        target = draw.choices(usable, k=draw.randint(1, MAX_SOURCE))
        source = torch.tensor(template.source(ids))
        prefix = torch.tensor(template.decoder_input(target))
        ours = model.project(model.read(Ragged.of([source]), Ragged.of([prefix])).values)
        theirs = original(input_ids=source[None], decoder_input_ids=prefix[None], use_cache=False)
        found = max(found, float((ours - theirs.logits[0]).abs().max()))
    return found


def compare_search(
    bundle: Bundle,
    original: Any,
    sources: Sequence[Ids],
    pipelines: Sequence[Pipeline],
    *,
    beam: int = 1,
    length_penalty: float = 1.0,
) -> list[OutputCounts]:
    """Search with each pipeline and with `generate`, with equal settings."""
    search = Greedy() if beam == 1 else Beam(beam, 1, LengthPenalty(length_penalty))
    model, template = inference_model(bundle.model), bundle.template
    limits: dict[str, Any] = {"max_length": MAX_LENGTH, "ratio": 100.0}
    found = search_all(search, model, sources, template=template, **limits)
    close = [one.is_close for one in found]
    theirs = generate(original, sources, template, beam=beam, length_penalty=length_penalty)
    counts = []
    for pipeline in pipelines:
        ours = search_texts(pipeline, sources, beam, length_penalty)
        rows = zip(ours, theirs, close, strict=True)
        different = sum(a != b and not near for a, b, near in rows)
        counts.append(OutputCounts(len(ours), different, sum(close), sum(map(len, ours))))
    return counts


class EndAtLimit(transformers.LogitsProcessor):
    """At the limit only END is allowed, with its own log-probability, as in Regard."""

    def __init__(self, end: int, start: int) -> None:
        self.end, self.start = end, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] - self.start < MAX_LENGTH:
            return scores
        ending = torch.full_like(scores, float("-inf"))
        ending[:, self.end] = scores[:, self.end]
        return ending


@torch.inference_mode()
def generate(
    original: Any, sources: Sequence[Ids], template: Template, *, beam: int, length_penalty: float
) -> list[Ids]:
    """The outputs of `generate`."""
    given = [torch.tensor(template.source(ids)) for ids in sources]
    pad = original.config.pad_token_id
    mask = pad_sequence([torch.ones_like(ids) for ids in given], batch_first=True)
    original.generation_config = transformers.GenerationConfig(
        eos_token_id=template.end,
        pad_token_id=pad,
        decoder_start_token_id=template.start[0],
        suppress_tokens=list(template.banned),
        max_new_tokens=MAX_LENGTH + 1,
        num_beams=beam,
        **({"early_stopping": "never", "length_penalty": length_penalty} if beam > 1 else {}),
        use_cache=can_use_cache(original.config),
    )
    found = original.generate(
        input_ids=pad_sequence(given, batch_first=True, padding_value=pad),
        attention_mask=mask,
        decoder_input_ids=torch.tensor([template.start] * len(given)),
        logits_processor=[EndAtLimit(template.end, len(template.start))],
    )
    outputs = [ids[len(template.start) :] for ids in found.tolist()]
    return [ids[: ids.index(template.end)] for ids in outputs]


def search_texts(
    pipeline: Pipeline, sources: Sequence[Ids], beam: int, length_penalty: float
) -> list[Ids]:
    """The outputs of a pipeline for the texts of the sources."""
    token = pipeline.bundle.source.token
    lines = [" ".join(map(token, ids)) for ids in sources]
    options = {"beam": beam, "length_penalty": length_penalty, "max_length": MAX_LENGTH}
    return [list(answer.ids) for (answer, *_) in pipeline.answers(lines, **options)]
