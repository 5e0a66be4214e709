"""The explorer's entry for a trace of given numbers, which has no model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from regard.explore.messages import MAX_TOKENS
from regard.explore.model_store import ServedModel
from regard.explore.trace_json import blocks

if TYPE_CHECKING:
    from regard.pipeline import Pipeline
    from regard.trace import Trace

NAME = "arrays"


class ArrayModel(ServedModel):
    """What the page says about numbers from another program."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.included, self.card = trace, False, {}
        self.name, self.sha8, self.id = NAME, "0" * 8, f"{NAME}@{'0' * 8}"
        self.family = "recurrent" if "attn.weights" in trace else "transformer"
        texts = {piece.id: piece.text for piece in (*trace.target, *trace.following)}
        self.labels = texts
        self.vocabulary_sizes = {"source": len(trace.source), "target": len(texts)}

    @cached_property
    def entry(self) -> dict[str, Any]:
        """The entry in the list of models."""
        kinds = {"encoder": ("encoder",), "decoder": ("decoder", "cross")}
        return {
            "id": self.id,
            "name": self.name,
            "sha8": self.sha8,
            "title": "given numbers",
            "family": self.family,
            "included": False,
            "task": "text",
            "parameters": 0,
            "position": None,
            "layers": {
                stack: len({one.layer for one in self.trace.attentions if one.kind in names})
                for stack, names in kinds.items()
            },
            "heads": max(one.heads for one in self.trace.attentions),
            "width": None,
            "quality": [],
            "example": self.trace.answer.source,
            "examples": [self.trace.answer.source],
            "input": {side: {"alphabet": None, "case": "any"} for side in ("source", "target")},
            "tokenizers": self.sha8,
            "max_tokens": MAX_TOKENS,
            "film": False,
        }

    def token_label(self, id: int) -> str:
        """The text of a target token."""
        return self.labels.get(id, str(id))

    @contextmanager
    def exclusive(self) -> Iterator[Pipeline]:
        """Nothing can be computed."""
        self._refuse()
        yield self.pipeline

    def _refuse(self) -> NoReturn:
        self.trace.pipeline.model  # noqa: B018 (raises with the reason)
        raise AssertionError

    def graph(self) -> dict[str, Any]:
        """The blocks that the given tensors belong to."""
        return {
            "family": self.family,
            "settings": {},
            "vocabulary": self.vocabulary_sizes,
            "parameters": 0,
            "blocks": blocks(self.trace, {}),
        }
