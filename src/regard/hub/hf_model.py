"""HFModel: an exported folder in `transformers`, for verification."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from regard.bundle import Bundle
from regard.hub.conversion import has_shared_tokenizer
from regard.hub.hf_tokenizer import TARGET_FOLDER
from regard.hub.transformers_library import quiet_transformers

Ids = Sequence[int]
BATCH = 32  # sources that are searched together


class HFModel:
    """The model and the tokenizers of a folder, loaded as a user loads them."""

    def __init__(self, folder: Path, bundle: Bundle) -> None:
        with quiet_transformers() as library:
            self.model = library.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
            self.source = self.target = library.AutoTokenizer.from_pretrained(folder)
            if not has_shared_tokenizer(bundle):
                self.target = library.AutoTokenizer.from_pretrained(folder, subfolder=TARGET_FOLDER)
        self._template, self._size = bundle.template, len(bundle.target)

    def greedy(self, sources: Sequence[Ids], limits: Sequence[int]) -> list[list[int]]:
        """The greedy output of each source, in batches."""
        found: list[list[int]] = []
        for start in range(0, len(sources), BATCH):
            found += self.generate(sources[start : start + BATCH], limit=max(limits), beam=1)
        return [ids[:limit] for ids, limit in zip(found, limits, strict=True)]

    @torch.inference_mode()
    def generate(
        self, sources: Sequence[Ids], *, limit: int, beam: int, **options: Any
    ) -> list[list[int]]:
        """The best output of `generate` for each source, at most `limit` tokens."""
        template = self._template
        given = [torch.tensor(template.source(ids)) for ids in sources]
        ids = pad_sequence(given, batch_first=True, padding_value=template.end)
        mask = pad_sequence([torch.ones_like(one) for one in given], batch_first=True)
        count = len(template.start)
        with quiet_transformers():
            found = self.model.generate(
                ids,
                attention_mask=mask,
                num_beams=beam,
                max_new_tokens=limit + count,  # the end, and start tokens after the first
                **options,
            )
        rows = found[:, count:].tolist()
        return [row[: (*row, template.end).index(template.end)] for row in rows]

    @torch.inference_mode()
    def logits(self, source: Ids, target: Ids) -> np.ndarray:
        """The logits of each token of a target and of its end, for the ids of the target."""
        template = self._template
        given = torch.tensor([template.source(source)])
        prefix = torch.tensor([template.decoder_input(target)])
        found = self.model(input_ids=given, decoder_input_ids=prefix).logits[0]
        logits: np.ndarray = found[len(template.start) - 1 :, : self._size].numpy()
        return logits

    def encode(self, text: str) -> list[int]:
        """The ids of a text with special tokens."""
        ids: list[int] = self.source(text).input_ids
        return ids

    def decode(self, ids: Ids) -> str:
        """The text of an output."""
        return str(self.target.decode(list(ids), skip_special_tokens=True))
