"""POST /translate and GET /languages: the API of LibreTranslate.

A multilingual model serves all pairs of its languages, a model named en-de that pair. Without
either, the only model answers whatever the codes are.
"""

from __future__ import annotations

import json
import re
from typing import Any

from regard.serve.access_rules import AccessRules
from regard.serve.http_exchange import FORM, JSON, Exchange, Reply
from regard.serve.http_requests import LibreTranslateRequest, parse_form, parse_json
from regard.serve.service import Service
from regard.serve.service_errors import Draining, InvalidRequest

PAIR = re.compile("([a-z]{2,3}(?:_[A-Za-z]+)?)-([a-z]{2,3}(?:_[A-Za-z]+)?)")


class LibreTranslate:
    """The endpoints of LibreTranslate, on top of a service."""

    def __init__(self, service: Service, rules: AccessRules) -> None:
        self.service = service
        self.rules = rules

    async def translate(self, exchange: Exchange) -> Reply:
        """Translate a text or a list of texts."""
        parse = parse_form if exchange.content_type(JSON, FORM) == FORM else parse_json
        request = parse(LibreTranslateRequest, await exchange.body())
        self.rules.check_token(exchange.scope, request.api_key)
        texts = [request.q] if isinstance(request.q, str) else request.q
        model, options = self._choose(request.source, request.target)
        if request.alternatives:
            options["n_best"] = 1 + request.alternatives
        exchange.note_texts(model, texts)
        outputs = await self.service.generate(model, texts, options)
        found: dict[str, Any] = {
            "translatedText": [answers[0]["text"] for answers in outputs],
            "confidence": [answers[0]["confidence"] for answers in outputs],
        }
        if request.alternatives:
            found["alternatives"] = [
                [answer["text"] for answer in answers[1:]] for answers in outputs
            ]
        if isinstance(request.q, str):
            found = {name: values[0] for name, values in found.items()}
        return Reply(json.dumps(found, ensure_ascii=False).encode())

    async def languages(self, exchange: Exchange) -> Reply:
        """The languages of all models, each with those it can be translated to."""
        pairs: dict[str, set[str]] = {}
        for source, target, _ in self._pairs():
            pairs.setdefault(source, set()).add(target)
            pairs.setdefault(target, set())
        found = [
            {"code": code, "name": code, "targets": sorted(targets)}
            for code, targets in sorted(pairs.items())
        ]
        return Reply(json.dumps(found).encode())

    def _choose(self, source: str, target: str) -> tuple[str, dict[str, Any]]:
        """The model for two languages, and the options that select them."""
        if not self.service.models:
            raise Draining("the models are being loaded; retry later", retry_after=1)
        for name, info in self.service.models.items():
            if info.languages and source in info.languages and target in info.languages:
                return name, {"source_language": source, "target_language": target}
            if not info.languages and name == f"{source}-{target}":
                return name, {}
        plain = [
            name
            for name, info in self.service.models.items()
            if not info.languages and not PAIR.fullmatch(name)
        ]
        if len(self.service.models) == len(plain) == 1:
            return plain[0], {}
        known = ", ".join(sorted({f"{one}-{other}" for one, other, _ in self._pairs()})[:20])
        wanted = f"{source[:20]} to {target[:20]}"
        raise InvalidRequest(f"no model translates {wanted}; served are: {known or 'none'}")

    def _pairs(self) -> list[tuple[str, str, str]]:
        """All pairs of languages with their model."""
        found: list[tuple[str, str, str]] = []
        for name, info in self.service.models.items():
            if info.languages:
                codes = info.languages
                found += [(a, b, name) for a in codes for b in codes if a != b]
            elif pair := PAIR.fullmatch(name):
                found.append((pair[1], pair[2], name))
            else:
                found.append(("source", "target", name))
        return found
