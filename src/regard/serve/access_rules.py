"""Who may use the server: Host, Origin, CORS and the token, and where the token comes from."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError
from regard.web.access import HttpError, Scope, check_host, check_origin, header, is_token

MAX_TOKEN = 4_096
CORS_METHODS = "GET, POST"
CORS_HEADERS = "authorization, content-type"


@dataclass(frozen=True)
class AccessRules:
    """The names under which the server is reached, its token, and the origins it trusts.

    `hosts` are Host headers; None accepts all, which is safe only with a token.
    """

    hosts: frozenset[str] | None
    port: int
    token: str | None = None
    origins: frozenset[str] = frozenset()

    def check(self, scope: Scope, *, public: bool) -> None:
        """Raise unless the request may be answered; a `public` path needs no token."""
        if self.hosts is not None:
            check_host(scope, self.hosts, self.port)
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and "*" not in self.origins:
            check_origin(scope, self.origins)
        if not public:
            self.check_token(scope)

    def check_token(self, scope: Scope, given: str | None = None) -> None:
        """Raise unless there is no token, or the request has it in its header or as `given`."""
        if self.token is None:
            return
        scheme, _, text = header(scope, b"authorization").partition(" ")
        if scheme.lower() == "bearer" and is_token(text.strip(), self.token):
            return
        if given is None or not is_token(given, self.token):
            message = "the token is missing or wrong; send the header Authorization: Bearer TOKEN"
            headers = {"www-authenticate": "Bearer"}
            raise HttpError(401, "wrong-token", message, headers)

    def cors_headers(self, scope: Scope) -> dict[str, str]:
        """The headers that let pages of an allowed origin read the response."""
        if not self.origins:
            return {}
        origin = header(scope, b"origin")
        if origin and ("*" in self.origins or origin.lower() in self.origins):
            return {"access-control-allow-origin": origin, "vary": "origin"}
        return {"vary": "origin"}

    def preflight_headers(self, scope: Scope) -> dict[str, str]:
        """The answer to a browser that asks whether a page may send a request."""
        if "access-control-allow-origin" not in self.cors_headers(scope):
            return {}
        names = {"access-control-allow-methods": CORS_METHODS, "access-control-max-age": "600"}
        return {**names, "access-control-allow-headers": CORS_HEADERS}


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii")[: MAX_TOKEN + 1].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise RegardError(f"cannot read --token-file {str(path)!r}: {reason}") from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        fix = f"run: chmod 600 {path}"
        raise RegardError(f"--token-file {str(path)!r} can be read by other users; {fix}")
    if len(text) < 16 or len(text) > MAX_TOKEN or len(text.split()) != 1:
        fix = "write 16 or more characters without spaces, such as `openssl rand -hex 32` prints"
        raise RegardError(f"--token-file {str(path)!r} has no usable token; {fix}")
    return text


def checked_origin(text: str) -> str:
    """An origin of --allow-origin: scheme://host[:port], or * for all."""
    scheme, separator, rest = text.lower().rstrip("/").partition("://")
    if text == "*":
        return text
    if not separator or scheme not in ("http", "https") or not rest or "/" in rest:
        example = "https://app.example.org"
        raise RegardError(f"--allow-origin must be an origin such as {example}; got {text!r}")
    return f"{scheme}://{rest}"
