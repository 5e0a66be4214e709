"""Answers of a worker: the answers of a pipeline as JSON, text by text."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from regard.answer import Answer
from regard.errors import RegardError
from regard.pipeline import Pipeline
from regard.serve.frames import Status, TextResult

encode_json: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":")
).encode


class WorkerAnswers:
    """Runs the texts of a batch through a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        warnings.simplefilter("ignore")  # a worker has nobody to warn

    def batch(
        self, texts: Sequence[str], options: Mapping[str, Any], *, alignment: bool
    ) -> tuple[list[TextResult], int]:
        """The result of each text, and the number of output tokens.

        A text without an answer does not harm the others: each then runs alone.
        """
        try:
            return self._answer(texts, options, alignment)
        except Exception as error:  # the worker reports any error and continues
            if len(texts) == 1:
                return [failure(error)], 0
        alone = [self.batch([text], options, alignment=alignment) for text in texts]
        return [results[0] for results, _ in alone], sum(tokens for _, tokens in alone)

    def stream(self, text: str, options: Mapping[str, Any]) -> Iterator[str]:
        """The best answer piece by piece."""
        return (piece for piece in self.pipeline.stream(text, **options) if piece)

    def _answer(
        self, texts: Sequence[str], options: Mapping[str, Any], alignment: bool
    ) -> tuple[list[TextResult], int]:
        most, tokens = options.get("n_best", 1), 0
        results = []
        for found in self.pipeline.answers(texts, first=len(texts), **options):
            if (error := found[0].error) is not None:  # far too long for the model
                results.append(TextResult(Status.REJECTED, error.encode(errors="replace")))
                continue
            found = found[:most]
            tokens += sum(len(answer.logps) for answer in found)
            fields = [answer_fields(answer) for answer in found]
            if alignment:
                for answer, values in zip(found, fields, strict=True):
                    values["alignment"] = self._links(answer, options)
            results.append(TextResult(Status.ANSWERED, encode_json(fields).encode()))
        return results, tokens

    def _links(self, answer: Answer, options: Mapping[str, Any]) -> list[list[int]]:
        if not answer.logps:  # an empty text
            return []
        languages = options.get("source_language"), options.get("target_language")
        template = self.pipeline.bundle.template.for_languages(*languages)
        return self.pipeline.alignment_links(answer, template)


def answer_fields(answer: Answer) -> dict[str, Any]:
    """An answer as a JSON object."""
    logp = answer.logp
    finite = math.isfinite(logp)  # and so is every part of the sum
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "logps": [round(value, 6) if finite else _number(value) for value in answer.logps],
        "logp": _number(logp),
        "score": _number(answer.score),
        "confidence": _number(answer.confidence),
        "unknown": answer.unknown,
    }


def failure(error: Exception) -> TextResult:
    """The result of a text that raised: a RegardError is the fault of the request."""
    message = str(error).replace("\n", " ") or type(error).__name__
    if isinstance(error, RegardError):
        return TextResult(Status.REJECTED, message.encode(errors="replace"))
    return TextResult(Status.BROKEN, f"{type(error).__name__}: {message}".encode(errors="replace"))


def _number(value: float) -> float | None:
    """A number with six decimals; null for infinities and NaN, which JSON does not have."""
    return round(value, 6) if math.isfinite(value) else None
