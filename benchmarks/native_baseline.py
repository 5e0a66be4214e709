"""The baseline of the native benchmark: the same Transformer on CTranslate2 (MIT licence)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.bundle import Bundle
from regard.config import ModelSettings, parse
from regard.hub.ctranslate2_export import tokens
from regard.models import build
from regard.text import train_tokenizer


def bundle_of(
    settings: Mapping[str, Any], sizes: tuple[int, int], tensors: Mapping[str, np.ndarray]
) -> Bundle:
    """A bundle with these weights, whose tokens are ids in words."""
    parsed = parse(ModelSettings, dict(settings), "model")
    model = build(parsed, *sizes).eval()
    arrays = {name: torch.tensor(array) for name, array in tensors.items()}
    missing, unexpected = model.load_state_dict(arrays, strict=False)
    assert set(missing) <= {"output.table"}, missing  # tied to that of the target
    assert not unexpected, unexpected
    source, target = (
        train_tokenizer("words", [" ".join(f"{id:07}" for id in range(3, size))]) for size in sizes
    )
    return Bundle(model, source, target, parsed, {})


class CTranslate2:
    """A CTranslate2 folder, searched like the native engine."""

    def __init__(self, folder: Path, bundle: Bundle, compute: str, threads: int = 1) -> None:
        import ctranslate2

        self.source, self.target = tokens(bundle.source), tokens(bundle.target)
        self.ids = {token: id for id, token in enumerate(self.target)}
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute, inter_threads=threads, intra_threads=1
        )

    def __call__(
        self, sources: Sequence[Sequence[int]], *, beam: int, forced: int | None, most: int
    ) -> list[list[int]]:
        """The best output of each source; `forced`: exactly that many tokens."""
        lengths = {"min_decoding_length": 0, "max_decoding_length": most + 1}
        if forced:
            lengths = {"min_decoding_length": forced + 1, "max_decoding_length": forced + 1}
        found = self.translator.translate_batch(
            [[self.source[id] for id in ids] for ids in sources],
            beam_size=beam,
            length_penalty=0,
            **lengths,
        )
        return [[self.ids[token] for token in one.hypotheses[0]] for one in found]
