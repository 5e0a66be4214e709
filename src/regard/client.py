"""Clients of `regard serve`: `Client` and `AsyncClient`, with retries and streams.

>>> with regard.Client() as client:
...     client.generate("attention", n_best=2)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from regard.client_protocol import (
    ADDRESS,
    Output,
    RequestFailed,
    RetryPolicy,
    best_texts,
    error_of,
    parse_event,
    request_body,
    timed_out,
    unreachable,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    import httpx2

GENERATE = "/v1/generate"


def _library() -> Any:
    try:
        import httpx2
    except ImportError:
        message = "regard.Client needs httpx2; install it with: pip install 'regard[client]'"
        raise RegardError(message) from None
    return httpx2


class _Settings:
    """The address, token, time limit and retries of a client."""

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        self.address = address.rstrip("/")
        self.timeout = timeout
        self.policy = RetryPolicy(retries)
        self._library = _library()
        self._options: dict[str, Any] = {
            "base_url": self.address,
            "timeout": timeout,
            "headers": {"authorization": f"Bearer {token}"} if token else {},
        }

    def _failed(self, error: Exception) -> RequestFailed:
        """An error of the HTTP library as ours."""
        if isinstance(error, self._library.ReadTimeout | self._library.WriteTimeout):
            return timed_out(self.address, self.timeout)
        return unreachable(self.address, error)


class Client(_Settings):
    """A client of `regard serve`. Rejected requests (429, 503) are retried with backoff.

    `timeout` is in seconds per attempt. Use it as a context manager, or close it.
    """

    def __init__(self, address: str = ADDRESS, **options: Any) -> None:
        super().__init__(address, **options)
        self._http: httpx2.Client = self._library.Client(**self._options)

    @overload
    def generate(self, texts: str, **options: Any) -> list[Output]: ...
    @overload
    def generate(self, texts: Sequence[str], **options: Any) -> list[list[Output]]: ...
    def generate(
        self, texts: str | Sequence[str], **options: Any
    ) -> list[Output] | list[list[Output]]:
        """The n best outputs of a text, or of each text of a list, best first.

        Each is a dict: text, tokens, logps, logp, score, confidence and unknown. Options are those
        of `DecodingOptions`, and model, alignment and deadline.
        """
        found = self._generate(texts, options)
        return found[0] if isinstance(texts, str) else found

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def translate(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The text of the best output, for a text or a list; options as in `generate`."""
        found = best_texts(self._generate(texts, options))
        return found[0] if isinstance(texts, str) else found

    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """Parts of the output as soon as they are certain; joined, they are its text."""
        body = {**request_body(text, options), "stream": True}
        attempt = 0
        while True:
            try:
                with self._http.stream("POST", GENERATE, json=body) as response:
                    if response.status_code != 200:
                        content, status = response.read(), response.status_code
                        raise error_of(status, content, response.headers)
                    for line in response.iter_lines():
                        if event := parse_event(line):
                            attempt = self.policy.retries  # what was yielded is not repeated
                            yield from [event["piece"]] if "piece" in event else []
                    return
            except self._library.TransportError as error:
                failed = self._failed(error)
            except RequestFailed as error:
                failed = error
            self._pause(attempt, failed)
            attempt += 1

    def models(self) -> list[dict[str, Any]]:
        """The served models: id, fingerprint, engine, device and languages."""
        return self._request("GET", "/v1/models")["data"]

    def health(self) -> bool:
        """Whether the server can answer; False if it is starting, stopping or not there."""
        try:
            return self._http.get("/v2/health/ready").status_code == 200
        except self._library.TransportError:
            return False

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _generate(self, texts: str | Sequence[str], options: dict[str, Any]) -> list[list[Output]]:
        return self._request("POST", GENERATE, request_body(texts, options))["outputs"]

    def _request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                response = self._http.request(method, path, json=body)
                if response.status_code == 200:
                    return response.json()
                failed = error_of(response.status_code, response.content, response.headers)
            except self._library.TransportError as error:
                failed = self._failed(error)
            self._pause(attempt, failed)
            attempt += 1

    def _pause(self, attempt: int, failed: RequestFailed) -> None:
        seconds = self.policy.delay(attempt, failed)
        if seconds is None:
            raise failed
        time.sleep(seconds)


class AsyncClient(_Settings):
    """`Client` for asyncio: the same methods, awaited. Many requests may run at a time."""

    def __init__(self, address: str = ADDRESS, **options: Any) -> None:
        super().__init__(address, **options)
        self._http: httpx2.AsyncClient = self._library.AsyncClient(**self._options)

    @overload
    async def generate(self, texts: str, **options: Any) -> list[Output]: ...
    @overload
    async def generate(self, texts: Sequence[str], **options: Any) -> list[list[Output]]: ...
    async def generate(
        self, texts: str | Sequence[str], **options: Any
    ) -> list[Output] | list[list[Output]]:
        """The n best outputs of a text, or of each text of a list, best first."""
        found = await self._generate(texts, options)
        return found[0] if isinstance(texts, str) else found

    @overload
    async def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    async def translate(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    async def translate(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The text of the best output, for a text or a list."""
        found = best_texts(await self._generate(texts, options))
        return found[0] if isinstance(texts, str) else found

    async def stream(self, text: str, **options: Any) -> AsyncIterator[str]:
        """Parts of the output as soon as they are certain; joined, they are its text."""
        body = {**request_body(text, options), "stream": True}
        attempt = 0
        while True:
            try:
                async with self._http.stream("POST", GENERATE, json=body) as response:
                    if response.status_code != 200:
                        content, status = await response.aread(), response.status_code
                        raise error_of(status, content, response.headers)
                    async for line in response.aiter_lines():
                        if event := parse_event(line):
                            attempt = self.policy.retries  # what was yielded is not repeated
                            if "piece" in event:
                                yield event["piece"]
                    return
            except self._library.TransportError as error:
                failed = self._failed(error)
            except RequestFailed as error:
                failed = error
            await self._pause(attempt, failed)
            attempt += 1

    async def models(self) -> list[dict[str, Any]]:
        """The served models: id, fingerprint, engine, device and languages."""
        return (await self._request("GET", "/v1/models"))["data"]

    async def health(self) -> bool:
        """Whether the server can answer; False if it is starting, stopping or not there."""
        try:
            return (await self._http.get("/v2/health/ready")).status_code == 200
        except self._library.TransportError:
            return False

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _generate(
        self, texts: str | Sequence[str], options: dict[str, Any]
    ) -> list[list[Output]]:
        return (await self._request("POST", GENERATE, request_body(texts, options)))["outputs"]

    async def _request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                response = await self._http.request(method, path, json=body)
                if response.status_code == 200:
                    return response.json()
                failed = error_of(response.status_code, response.content, response.headers)
            except self._library.TransportError as error:
                failed = self._failed(error)
            await self._pause(attempt, failed)
            attempt += 1

    async def _pause(self, attempt: int, failed: RequestFailed) -> None:
        seconds = self.policy.delay(attempt, failed)
        if seconds is None:
            raise failed
        await asyncio.sleep(seconds)
