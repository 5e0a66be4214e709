"""One HTTP request and its reply, as the endpoints see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from regard.web.access import HttpError, Receive, Scope, header, read_body
from regard.web.http_limits import HttpLimits

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


@dataclass(slots=True)
class Exchange:
    """A request: its scope and body, and facts about it for the log."""

    scope: Scope
    receive: Receive
    limits: HttpLimits
    name: str = ""  # from the path: the model of /v1/models/NAME
    model: str = ""
    texts: int = 0
    characters: int = 0
    content: list[str] | None = None  # the texts, if they are logged
    is_complete: bool = False  # the whole body has arrived

    def content_type(self, *allowed: str) -> str:
        """The type of the body, which must be one of `allowed` and in UTF-8."""
        kind, _, parameters = header(self.scope, b"content-type").partition(";")
        kind = kind.strip().lower()
        if kind not in allowed:  # no page of another site can send JSON without a preflight
            reason = f"the body must be {' or '.join(allowed)}; got {kind[:80]!r}"
            raise HttpError(415, "wrong-type", reason)
        name, _, charset = parameters.strip().lower().partition("=")
        if parameters and name == "charset" and charset.strip('" ') not in ("utf-8", "utf8"):
            raise HttpError(415, "wrong-type", f"the charset must be utf-8; got {charset[:80]!r}")
        if coding := header(self.scope, b"content-encoding"):
            reason = f"the body must not be compressed; got content-encoding {coding[:80]!r}"
            raise HttpError(415, "wrong-type", reason)
        return kind

    async def body(self) -> bytes:
        """The whole body, within the limits of size and time."""
        limit = self.limits.body_bytes
        length = header(self.scope, b"content-length")
        if length.isdecimal() and int(length[:20]) > limit:  # refused before it is read
            text = f"the request has over {limit:,} bytes; send less"
            raise HttpError(413, "too-large", text, {"connection": "close"})
        seconds = None if self.is_complete else self.limits.idle_seconds
        return await read_body(self.receive, limit, seconds)

    def note_texts(self, model: str, texts: list[str]) -> None:
        """Remember the size of the request for the log."""
        self.model = model
        self.texts = len(texts)
        self.characters = sum(map(len, texts))
        self.content = texts


@dataclass(slots=True)
class Reply:
    """A response: a body, or a stream of parts."""

    body: bytes
    kind: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: AsyncIterator[bytes] | None = None
