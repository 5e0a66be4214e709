"""The pages of the server: one to try a model, one that shows the API. Both work offline."""

from __future__ import annotations

import json
from pathlib import Path

from regard.serve.http_exchange import JSON, Exchange, Reply
from regard.serve.openapi_schema import openapi_schema
from regard.web.access import HEADERS

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
ADDRESSES = {"/": "try.html", "/docs": "api.html"}


class WebPages:
    """Static files and the OpenAPI schema, read once and kept in memory."""

    def __init__(self, *, token: bool) -> None:
        files = {f"/static/{file.name}": file for file in sorted(STATIC.iterdir())}
        files |= {address: STATIC / name for address, name in ADDRESSES.items()}
        self._replies = {
            address: Reply(file.read_bytes(), f"{TYPES[file.suffix]}; charset=utf-8")
            for address, file in files.items()
            if file.suffix in TYPES
        }
        schema = json.dumps(openapi_schema(token=token), ensure_ascii=False)
        self._replies["/openapi.json"] = Reply(schema.encode(), JSON)
        headers = {**HEADERS, "cache-control": "no-cache"}
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    @property
    def paths(self) -> list[str]:
        """The addresses of all pages and files."""
        return list(self._replies)

    async def page(self, exchange: Exchange) -> Reply:
        """The file at the address."""
        return self._replies[exchange.scope["path"]]
