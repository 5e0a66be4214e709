"""The pages and the OpenAPI schema: offline, safe, and generated from the request models."""

import json
import re
from dataclasses import fields

import pytest

from regard.decoding_options import DecodingOptions, option_help
from regard.serve.openapi_schema import openapi_schema
from regard.serve.web_pages import STATIC
from regard.web.access import HEADERS
from tests.serve.http_helpers import get, running

FILES = {
    "/": "text/html",
    "/docs": "text/html",
    "/static/try.js": "text/javascript",
    "/static/api.js": "text/javascript",
    "/static/pages.css": "text/css",
    "/openapi.json": "application/json",
}


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.mark.parametrize("path", FILES)
def test_pages_have_their_type_and_headers(server, path):
    status, headers, body = get(server.port, path)
    assert (status, headers["content-type"].split(";")[0]) == (200, FILES[path])
    for name, value in HEADERS.items():
        assert headers[name] == value.lower()
    assert len(body) == int(headers["content-length"])
    head_status, head, nothing = get(server.port, path, method="HEAD")
    assert (head_status, head["content-length"], nothing) == (200, headers["content-length"], b"")


def test_pages_load_nothing_from_elsewhere():
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.findall(r"https?://|(?:src|href|url)[=(]\s*[\"']?//", text), file.name
        if file.suffix == ".html":
            assert not re.findall(r"<script>|<style|style=|\son\w+=", text), file.name
            for address in re.findall(r'(?:src|href)="([^"]+)"', text):
                assert address in FILES, (file.name, address)


def test_schema_has_every_option_with_its_description():
    schema = openapi_schema(token=False)
    found = schema["components"]["schemas"]["GenerateRequest"]["properties"]
    texts = option_help(DecodingOptions)
    for field in fields(DecodingOptions):
        assert found[field.name]["description"] == texts[field.name]
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        assert found[field.name]["default"] == default
    assert {"input", "model", "stream", "deadline", "alignment"} < set(found)


def test_schema_is_complete_and_lists_the_paths(server):
    schema = json.loads(get(server.port, "/openapi.json")[2])
    assert schema["openapi"] == "3.1.0"
    references = set(re.findall('"#/components/schemas/([^"]+)"', json.dumps(schema)))
    assert references <= set(schema["components"]["schemas"])
    for path, methods in schema["paths"].items():
        for method in methods:
            reached = get(server.port, path.replace("{name}", "reverse"), method=method.upper())
            assert reached[0] not in (404, 405), (method, path)


def test_schema_asks_for_the_token():
    assert "security" not in openapi_schema(token=False)
    guarded = openapi_schema(token=True)
    assert guarded["security"] == [{"token": []}]
    assert guarded["paths"]["/v2/health/live"]["get"]["security"] == []
