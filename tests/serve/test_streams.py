"""Streams: the pieces are the text of the answer, for every search; and they can be stopped."""

import asyncio
import os
import signal
from contextlib import aclosing
from typing import Any

import pytest

from regard.serve.service_errors import DeadlineExceeded, InvalidRequest
from tests.serve.service_helpers import RunningService, pipeline, run, serving, until

TEXTS = ["internationalization", "attention", "x", "", "naïve"]
OPTIONS: list[dict[str, Any]] = [{}, {"beam": 1}, {"beam": 6, "ban": ["AH"]}, {"prefix": "K"}]


async def streamed(service: RunningService, text: str, options: Any) -> tuple[str, dict[str, Any]]:
    """The joined pieces of a stream, and its answer."""
    events = [event async for event in service.stream("spelling", text, options)]
    assert all(set(event) == {"piece"} and event["piece"] for event in events[:-1])
    return "".join(event["piece"] for event in events[:-1]), events[-1]["answer"]


@pytest.mark.parametrize("options", OPTIONS)
def test_pieces_are_the_text_of_the_answer(options: dict[str, Any]):
    async def work() -> None:
        async with serving(workers=2) as service:
            calls = (streamed(service, text, options) for text in TEXTS)
            for text, (pieces, answer) in zip(TEXTS, await asyncio.gather(*calls), strict=True):
                expected = pipeline()(text, **options)
                assert pieces == answer["text"] == expected.text
                assert answer["logps"] == pytest.approx(expected.logps, abs=1e-5)
                ((same,),) = await service.generate("spelling", [text], options)
                assert same == answer

    run(work())


def test_a_stream_continues_after_its_worker_died():
    async def work() -> None:
        async with serving() as service:
            for _ in range(5):
                service.signal(signal.SIGSTOP)
                started = len(service.events.of("started"))
                call = asyncio.create_task(streamed(service, TEXTS[0], {}))
                await until(lambda n=started: len(service.events.of("started")) > n)
                (pid,) = service.workers
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)  # before or after its first pieces
                pieces, answer = await call
                assert pieces == answer["text"] == pipeline()(TEXTS[0]).text
                await service.generate("spelling", ["well"], {})

    run(work())


def test_a_closed_stream_frees_its_worker():
    async def work() -> None:
        async with serving() as service:
            (pid,) = service.workers
            async with aclosing(service.stream("spelling", TEXTS[0], {})) as stream:
                assert "piece" in await anext(stream)
            await until(lambda: service.events.of("finished"))
            service.signal(signal.SIGSTOP)
            async with aclosing(service.stream("spelling", TEXTS[0], {})) as waiting:
                step = asyncio.create_task(anext(waiting))
                await until(lambda: len(service.events.of("started")) == 2)
                step.cancel()
                await asyncio.wait([step])
            service.signal(signal.SIGCONT)
            ((answer,),) = await service.generate("spelling", ["free"], {})
            assert answer["text"] == pipeline()("free").text
            assert service.workers == [pid]
            assert ("spelling", "cancelled") in service.events.of("rejected")

    run(work())


def test_a_stream_that_cannot_run_is_refused():
    async def work() -> None:
        async with serving() as service:
            with pytest.raises(InvalidRequest, match="beem"):
                service.stream("spelling", "a", {"beem": 1})
            with pytest.raises(InvalidRequest, match="leave out sample"):
                await streamed(service, "a", {"sample": True})
            service.signal(signal.SIGSTOP)
            with pytest.raises(DeadlineExceeded):
                await anext(service.stream("spelling", "a", {}, deadline=0.02))
            service.signal(signal.SIGCONT)
            pieces, _ = await streamed(service, "a", {})
            assert pieces == pipeline()("a").text

    run(work())
