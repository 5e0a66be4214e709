"""The clients: outputs, streams, retries with backoff, and one-line errors."""

import asyncio
import inspect
import socket

import pytest

import regard
from regard import client_protocol
from regard.client_protocol import RequestFailed, RetryPolicy
from regard.errors import RegardError
from regard.serve.service_errors import DeadlineExceeded, InvalidRequest, QueueFull, WorkerLost
from tests.serve.http_helpers import FakeService, answer, running

TOKEN = "0123456789abcdef"


class Fails(FakeService):
    """Fails with each of `errors` in turn, then answers."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def generate(self, *arguments, **options):
        self.error = self.errors.pop(0) if self.errors else None
        return await super().generate(*arguments, **options)


@pytest.fixture(params=[regard.Client, regard.AsyncClient])
def call(request):
    """Runs a method of either client and returns its result; streams as lists."""

    async def run(server, method, *arguments, settings, **options):
        client = request.param(server.url, **settings)
        try:
            found = getattr(client, method)(*arguments, **options)
            if inspect.isasyncgen(found):
                return [part async for part in found]
            if inspect.isgenerator(found):
                return list(found)
            return await found if inspect.isawaitable(found) else found
        finally:
            closed = client.close()
            if inspect.isawaitable(closed):
                await closed

    def start(server, method, *arguments, settings=None, **options):
        return asyncio.run(run(server, method, *arguments, settings=settings or {}, **options))

    return start


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses of all retries, which are not waited for."""
    found = []
    monkeypatch.setattr(
        "regard.client.time", type("Clock", (), {"sleep": staticmethod(found.append)})
    )

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("regard.client.asyncio", type("Loop", (), {"sleep": staticmethod(sleep)}))
    return found


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


def test_a_text_gives_outputs_and_a_list_lists(server, call):
    assert call(server, "generate", "ab", n_best=2) == [answer("ab"), answer("ab")]
    assert call(server, "generate", ["ab", "c"]) == [[answer("ab")], [answer("c")]]
    assert call(server, "generate", []) == []
    assert call(server, "translate", "größe") == "eßörg"
    assert call(server, "translate", ("ab", "c"), beam=None) == ["ba", "c"]


def test_options_reach_the_service(server, call):
    server.service.calls.clear()
    options = {"model": "reverse", "beam": 5, "ban": ["x"], "deadline": 3, "alignment": True}
    call(server, "generate", "ab", **options)
    assert server.service.calls == [("reverse", ["ab"], {"beam": 5, "ban": ("x",)}, True, 3.0)]


def test_a_stream_yields_pieces(server, call):
    assert call(server, "stream", "abcde", beam=4) == ["ed", "cb", "a"]


def test_models_and_health(server, call):
    assert [model["id"] for model in call(server, "models")] == ["reverse"]
    assert call(server, "health") is True


def test_rejected_requests_are_retried(call, pauses):
    full = QueueFull("full", retry_after=7)
    with running(Fails(full, WorkerLost("lost"), QueueFull("full"))) as server:
        assert call(server, "translate", "ab") == "ba"
        assert len(server.service.calls) == 4
    first, second, third = pauses
    assert first == 7  # as the server asked
    assert 0.1 <= second <= 0.2  # 0.1 · 2, jittered
    assert third == 1


def test_retries_end(call, pauses):
    with running(Fails(*[QueueFull("the queue is full")] * 9)) as server:
        with pytest.raises(RequestFailed, match=r"^the queue is full$") as caught:
            call(server, "generate", "ab", settings={"retries": 2})
        assert len(server.service.calls) == 3
    assert (caught.value.status, caught.value.code, len(pauses)) == (429, "queue_full", 2)


@pytest.mark.parametrize("error", [InvalidRequest("beam is too large"), DeadlineExceeded("late")])
def test_other_errors_are_not_retried(call, pauses, error):
    with running(Fails(error)) as server:
        with pytest.raises(RequestFailed, match=str(error)) as caught:
            call(server, "generate", "ab")
        assert (caught.value.status, caught.value.code) == (error.status, error.code)
    assert pauses == []


def test_an_error_in_a_stream_is_raised_after_its_pieces(call, pauses):
    service = FakeService()
    service.error = WorkerLost("two workers died")
    with running(service) as server, pytest.raises(RequestFailed, match="two workers died"):
        call(server, "stream", "ab")
    assert pauses == []  # pieces were yielded: a retry would repeat them


def test_a_stream_is_retried_before_its_first_piece(call, pauses):
    service = FakeService()
    service.error = QueueFull("full")
    with running(service) as server, pytest.raises(RequestFailed, match="full"):
        call(server, "stream", "", settings={"retries": 1})
    assert len(pauses) == 1


def test_a_server_that_is_not_there_is_named(call, pauses):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gone = type("Gone", (), {"url": f"http://127.0.0.1:{port}/"})
    with pytest.raises(
        RequestFailed, match=rf"^cannot reach http://127.0.0.1:{port}: .*regard serve"
    ):
        call(gone, "generate", "ab", settings={"retries": 3})
    assert len(pauses) == 3
    assert call(gone, "health") is False


def test_a_slow_server_is_a_timeout(call):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RequestFailed, match=r"did not answer within 0.2 s; raise timeout"):
            call(type("Silent", (), {"url": url}), "generate", "ab", settings={"timeout": 0.2})


def test_the_token_is_sent(call):
    with running(token=TOKEN) as server:
        assert call(server, "translate", "ab", settings={"token": TOKEN}) == "ba"
        with pytest.raises(RequestFailed, match="the token is missing or wrong") as caught:
            call(server, "translate", "ab")
        assert caught.value.status == 401


def test_texts_must_be_strings(server, call):
    with pytest.raises(RegardError, match=r"^texts must be str; got 5$"):
        call(server, "generate", ["a", 5])


def test_backoff_doubles_up_to_its_limit(monkeypatch):
    monkeypatch.setattr(client_protocol.random, "uniform", lambda low, high: high)
    policy, full = RetryPolicy(retries=20, pause=0.1), RequestFailed("", status=429)
    assert [round(policy.delay(n, full), 3) for n in (0, 1, 2, 8, 9, 19)] == [
        0.1, 0.2, 0.4, 25.6, 30, 30,
    ]  # fmt: skip
    assert policy.delay(20, full) is None
    assert policy.delay(0, RequestFailed("", status=429, retry_after=1e9)) == 30
    assert policy.delay(0, RequestFailed("", status=500)) is None


def test_any_response_is_an_error_in_one_line():
    for content in (b"", b"<html>", b'{"error": "x"}', b"[]", b'{"error": {}}'):
        error = client_protocol.error_of(502, content, {"retry-after": "Wed, 21 Oct 2026"})
        assert (str(error), error.retry_after) == ("the server answered with status 502", None)
