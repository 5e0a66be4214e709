"""POST /v1/generate and POST /v1/translations: texts in, outputs or a stream of events out."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from regard.serve.http_errors import failure, openai_form
from regard.serve.http_exchange import JSON, Exchange, Reply
from regard.serve.http_requests import (
    GenerateRequest,
    InputRequest,
    TranslationsRequest,
    parse_json,
)
from regard.serve.service import Service
from regard.serve.service_errors import Draining, InvalidRequest, UnknownModel

EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


class TextEndpoints:
    """The endpoints that run a model, on top of a service."""

    def __init__(self, service: Service, report: Callable[[BaseException], None]) -> None:
        self.service = service
        self.report = report  # of unexpected errors

    async def generate(self, exchange: Exchange) -> Reply:
        """Our own API: every output with its tokens, log-probabilities and confidence."""
        exchange.content_type(JSON)
        request = parse_json(GenerateRequest, await exchange.body())
        model = self.choose(request.model)
        exchange.note_texts(model, request.texts)
        if request.stream:
            return await self._stream(model, request, _generate_event)
        outputs = await self.service.generate_json(
            model,
            request.texts,
            request.options,
            alignment=request.alignment,
            deadline=request.deadline,
        )
        return Reply(b'{"model":%b,"outputs":[%b]}' % (_encode(model), b",".join(outputs)))

    async def translations(self, exchange: Exchange) -> Reply:
        """The envelope of OpenAI: one translation per text."""
        exchange.content_type(JSON)
        request = parse_json(TranslationsRequest, await exchange.body())
        model = self.choose(request.model)
        exchange.note_texts(model, request.texts)
        if request.stream:
            return await self._stream(model, request, _translation_event)
        outputs = await self.service.generate(
            model, request.texts, request.options, deadline=request.deadline
        )
        data = [
            {"object": "translation", "index": index, **_translation(answers)}
            for index, answers in enumerate(outputs)
        ]
        tokens = sum(len(answer["tokens"]) for answers in outputs for answer in answers)
        content = {"object": "list", "created": int(time.time()), "model": model, "data": data}
        return Reply(_encode({**content, "usage": {"completion_tokens": tokens}}))

    def choose(self, name: str | None) -> str:
        """The model of that name; without a name, the only one."""
        models = self.service.models
        if not models:
            raise Draining("the models are being loaded; retry later", retry_after=1)
        known = ", ".join(models)
        if name is None and len(models) > 1:
            raise InvalidRequest(f"model is missing; name one of the served models: {known}")
        if name is not None and name not in models:
            raise UnknownModel(f"no model {name[:80]!r}; served are: {known}")
        return next(iter(models)) if name is None else name

    async def _stream(self, model: str, request: InputRequest, form: EventForm) -> Reply:
        """Server-sent events. The first one is awaited, so that a rejection has its status."""
        if not isinstance(request.input, str):
            raise InvalidRequest("stream needs one text as input, not a list")
        if request.options.get("n_best", 1) != 1:
            raise InvalidRequest("stream returns one output; leave out n_best")
        if isinstance(request, GenerateRequest) and request.alignment:
            raise InvalidRequest("stream returns no alignment; leave out alignment or stream")
        deadline = request.deadline
        source = self.service.stream(model, request.input, request.options, deadline=deadline)
        events = aiter(source)
        first = await anext(events, None)
        parts = self._events(model, first, events, form)
        headers = {"x-accel-buffering": "no"}  # proxies pass every event on at once
        return Reply(b"", EVENTS, headers=headers, parts=parts)

    async def _events(
        self,
        model: str,
        first: dict[str, Any] | None,
        events: AsyncIterator[dict[str, Any]],
        form: EventForm,
    ) -> AsyncIterator[bytes]:
        try:
            event = first
            while event is not None:
                yield b"data: %b\n\n" % _encode(form(model, event))
                event = await anext(events, None)
        except Exception as error:
            failed = failure(error)
            if failed.status == 500:
                self.report(error)
            yield b"event: error\ndata: %b\n\n" % openai_form(failed)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
        yield DONE


EventForm = Callable[[str, dict[str, Any]], dict[str, Any]]


def _generate_event(model: str, event: dict[str, Any]) -> dict[str, Any]:
    return event


def _translation_event(model: str, event: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"object": "translation.chunk", "model": model, "index": 0}
    if "piece" in event:
        return {**content, "delta": event["piece"]}
    return {**content, "object": "translation", **_translation([event["answer"]])}


def _translation(answers: list[dict[str, Any]]) -> dict[str, Any]:
    best, *others = answers
    found = {"text": best["text"], "confidence": best["confidence"]}
    if others:
        found["alternatives"] = [answer["text"] for answer in others]
    return found


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
