"""Verification of an import: the same ids through the original in `transformers` and the copy.

Where `transformers` is not installed, outputs must be finite, and the card says so.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.hub.checkpoint_folder import HuggingFaceError
from regard.hub.transformers_library import quiet_transformers
from regard.inference import inference_model, search_all
from regard.models import is_finite
from regard.ragged import Ragged
from regard.search import Greedy

TOLERANCE = 1e-4  # of a logit, or of its size where it is above 1
TEXTS = [
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "Attention is all you need, isn't it?",
    "In 1984, 3.5 % of 20,000 people agreed.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Portez ce vieux whisky au juge blond qui fume.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.",
    "Съешь же ещё этих мягких французских булок.",
    "Η ταχεία αλεπού πηδά πάνω από το σκύλο.",
    "我能吞下玻璃而不伤身体。",
    "いろはにほへと ちりぬるを",
    "다람쥐 헌 쳇바퀴에 타고파",
]
RANDOM_SOURCES = 12
MAX_SOURCE, MAX_TARGET = 24, 16


def verify_import(bundle: Bundle, folder: str, texts: Sequence[str] = ()) -> dict[str, Any]:
    """The facts for the card; raises HuggingFaceError if the two models differ."""
    sources = choose_ids(bundle, [*texts, *TEXTS])
    if not is_finite(bundle.model):
        raise HuggingFaceError(
            f"cannot import {folder!r}: its weights are not finite; copy the model again"
        )
    found = search_all(
        Greedy(),
        inference_model(bundle.model),
        sources,
        max_length=MAX_TARGET,
        template=bundle.template,
    )
    outputs = [one.hypotheses[0].ids for one in found]
    ours = _logits(bundle, sources, outputs)
    if not all(bool(one.isfinite().all()) for one in ours):
        raise HuggingFaceError(
            f"cannot import {folder!r}: its outputs are not finite; copy the model again"
        )
    if find_spec("transformers") is None:
        return {"check": "finite outputs; transformers is not installed", "texts": len(sources)}
    with quiet_transformers() as transformers:
        original = _Original(transformers, folder, bundle)
        theirs = [
            original.logits(source, output) for source, output in zip(sources, outputs, strict=True)
        ]
        generated = [original.generate(source) for source in sources]
        tokenization = original.count_equal_encodings(bundle, TEXTS)
        version = str(transformers.__version__)
    differences = [float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)]
    largest, size = max(differences), max(float(one.abs().max()) for one in theirs)
    changed = [
        one.is_close
        for one, output, other in zip(found, outputs, generated, strict=True)
        if output != other
    ]
    if not largest <= TOLERANCE * max(1.0, size) or changed.count(False):
        raise HuggingFaceError(
            f"cannot import {folder!r}: the copy differs from the original, logits by up to "
            f"{largest:.1e} (allowed: {TOLERANCE:.0e}) and {changed.count(False)} of "
            f"{len(sources)} outputs; nothing was written; report the model's config.json"
        )
    return {
        "check": f"transformers {version}",
        "texts": len(sources),
        "largest_difference": largest,
        "largest_logit": size,
        "near_ties": changed.count(True),
        "tokenized_texts": len(TEXTS),
        **({} if tokenization is None else {"equal_tokenizations": tokenization}),
    }


def choose_ids(bundle: Bundle, texts: Sequence[str]) -> list[list[int]]:
    """The ids of texts, and random ones without special tokens."""
    template, size = bundle.template, len(bundle.source)
    special = {*template.banned, *template.start, *template.source_suffix, template.end}
    special |= {*template.source_prefix, *template.languages.values()}
    usable = [id for id in range(size) if id not in special] or [template.end]
    draw = random.Random(1)
    encoded = [
        [id for id in bundle.source.encode(text) if id not in template.banned][:MAX_SOURCE]
        for text in texts
    ]
    drawn = [draw.choices(usable, k=draw.randint(1, MAX_SOURCE)) for _ in range(RANDOM_SOURCES)]
    most = _positions(bundle) - template.source_tokens
    return [ids[:most] for ids in (*encoded, *drawn) if ids]


def _positions(bundle: Bundle) -> int:
    position = bundle.raw_settings.get("position")
    limit = position.get("max_length") if isinstance(position, dict) else None
    return limit if isinstance(limit, int) else MAX_SOURCE + 64


@torch.inference_mode()
def _logits(
    bundle: Bundle, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> list[Tensor]:
    """The logits at every position of each output, teacher-forced."""
    template, model = bundle.template, bundle.model
    read = Ragged.of([torch.tensor(template.source(ids)) for ids in sources])
    prefixes = [template.decoder_input(ids) for ids in outputs]
    found = model.read(read, Ragged.of([torch.tensor(ids) for ids in prefixes]))
    return list(model.project(found.values).split([len(ids) for ids in prefixes]))


def can_use_cache(config: Any) -> bool:
    """Whether `transformers` can generate with a cache: not where T5 has stacks of two depths."""
    values = config.to_dict()
    return values.get("num_decoder_layers") in (None, values.get("num_layers"))


class _Original:
    """The model in `transformers`, with the settings of the copy's search."""

    def __init__(self, transformers: Any, folder: str, bundle: Bundle) -> None:
        options = {"trust_remote_code": False, "local_files_only": True}
        self._transformers, self._folder, self._options = transformers, folder, options
        self.template = template = bundle.template
        try:
            self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, use_safetensors=True, dtype=torch.float32, **options
            ).eval()
        except Exception as error:  # of any kind
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise HuggingFaceError(
                f"cannot import {folder!r}: transformers cannot load it ({what:.200}); copy the "
                "model again"
            ) from None
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=template.end,
            pad_token_id=self.model.config.pad_token_id,
            decoder_start_token_id=template.start[0],
            suppress_tokens=list(template.banned) or None,
            max_new_tokens=MAX_TARGET,
            num_beams=1,
            do_sample=False,
            use_cache=can_use_cache(self.model.config),
        )

    @torch.inference_mode()
    def logits(self, source: Sequence[int], output: Sequence[int]) -> Tensor:
        given = torch.tensor([self.template.source(source)])
        prefix = torch.tensor([self.template.decoder_input(output)])
        mask = torch.ones_like(given)
        found = self.model(
            input_ids=given, attention_mask=mask, decoder_input_ids=prefix, use_cache=False
        )
        return found.logits[0]

    @torch.inference_mode()
    def generate(self, source: Sequence[int]) -> list[int]:
        given = torch.tensor([self.template.source(source)])
        start = torch.tensor([self.template.start])
        found = self.model.generate(
            input_ids=given, attention_mask=torch.ones_like(given), decoder_input_ids=start
        )
        ids = found[0, len(self.template.start) :].tolist()
        return ids[: ids.index(self.template.end)] if self.template.end in ids else ids

    def count_equal_encodings(self, bundle: Bundle, texts: Sequence[str]) -> int | None:
        """How many texts have the same ids in the original tokenizer; None if it does not load."""
        try:
            tokenizer = self._transformers.AutoTokenizer.from_pretrained(
                self._folder, **self._options
            )
            return sum(
                tokenizer(text, add_special_tokens=False).input_ids == bundle.source.encode(text)
                for text in texts
            )
        except Exception:  # it needs a library that is not installed, or there is none
            return None
