"""OnnxModel: an exported folder on onnxruntime, searched by the runner that is exported with it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from regard.bundle import Bundle
from regard.decoding_options import EXTRA, RATIO
from regard.hub.onnx_export import require_onnx
from regard.positions import Learned

Ids = Sequence[int]
UNLIMITED = 1 << 31  # tokens of an output


class OnnxModel:
    """A folder that `write_onnx` wrote. Ids of sources come without prefix and suffix."""

    def __init__(self, folder: Path, bundle: Bundle, *, threads: int = 0) -> None:
        require_onnx()
        runner: Any = import_module("regard.hub.run_onnx")  # imports onnxruntime
        self.runner, self._template = runner.OnnxRunner(folder, threads), bundle.template

    def greedy(self, sources: Sequence[Ids], limits: Sequence[int]) -> list[list[int]]:
        """The greedy output of each source."""
        pairs = zip(sources, limits, strict=True)
        return [self.search(source, limit, beam=1)[0][1] for source, limit in pairs]

    def search(
        self, source: Ids, limit: int, *, beam: int, alpha: float = 0.0
    ) -> list[tuple[float, list[int]]]:
        """Scores and outputs, best first."""
        found: list[tuple[float, list[int]]] = self.runner.search(
            self._template.source(source), limit, beam, alpha
        )
        return found

    def logits(self, source: Ids, target: Ids) -> np.ndarray:
        """The logits of each token of a target and of its end, one step at a time."""
        # Two rows, because a batch is what a search runs.
        logits, state = self.runner.start(self._template.source(source), 2)
        found = [logits[0]]
        for token in target:
            logits, state = self.runner.step(np.full(2, token), state)
            found.append(logits[1])
        return np.stack(found)


def runner_options(bundle: Bundle, tokenizers: tuple[str, str]) -> dict[str, Any]:
    """The options of the runner: special tokens, limits and files."""
    template, longest = bundle.template, bundle.card.get("longest", {})
    silent = sorted({template.end, *template.start} - {template.unknown})
    return {
        "source_tokenizer": tokenizers[0],
        "target_tokenizer": tokenizers[1],
        "source_prefix": list(template.source_prefix),
        "source_suffix": list(template.source_suffix),
        "start": list(template.start),
        "end": template.end,
        "banned": list(template.banned),
        "silent": silent,
        "unknown": bundle.target.token(template.unknown),
        "compose": bundle.target.is_decomposed,
        "ratio": longest.get("ratio", RATIO),
        "extra": EXTRA,
        "max_length": 2 * longest["target"] + 10 if "target" in longest else UNLIMITED,
        "length_penalty": float(bundle.card.get("task") == "text"),
        "max_tokens": max_tokens(bundle),
    }


def max_tokens(bundle: Bundle) -> int | None:
    """The maximum tokens of a side (None: no limit)."""
    model: Any = bundle.model
    position = model.source.position
    return position.max_length if isinstance(position, Learned) else None
