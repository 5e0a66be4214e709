"""Refusals: what the server will not or cannot do, each with its status, a code for programs and a line for people."""

from __future__ import annotations

from typing import Any

from regard.errors import RegardError

Headers = dict[str, str]


class Refusal(RegardError):
    """A request that ends here. `code` names the kind; the message names the thing, the value and the way out."""

    def __init__(self, status: int, code: str, message: str, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers or {}

    def content(self) -> dict[str, Any]:
        """The one shape of all errors."""
        return {"error": {"code": self.code, "message": str(self)}}


def unknown(code: str, message: str) -> Refusal:
    """Nothing goes by that name."""
    return Refusal(404, code, message)


def invalid(message: str, code: str = "invalid") -> Refusal:
    """Well-formed, but not possible."""
    return Refusal(422, code, message)
