"""Deadlines, cancellation and workers that hang."""

import asyncio
import signal

import pytest

from regard.serve import model_scheduler
from regard.serve.service_errors import DeadlineExceeded
from tests.serve.service_helpers import (
    approximately,
    facts,
    is_gone,
    offline,
    process_state,
    run,
    serving,
    until,
    words,
)


def test_a_request_ends_at_its_deadline():
    async def work() -> None:
        async with serving() as service:
            service.signal(signal.SIGSTOP)
            with pytest.raises(DeadlineExceeded, match=r"deadline of 0\.05 s") as late:
                await service.generate("spelling", ["a"], {}, deadline=0.05)
            assert late.value.status == 504
            service.signal(signal.SIGCONT)
            found = await service.generate("spelling", ["a"], {})
            assert approximately(facts(found), offline(["a"]))

    run(work())


def test_a_request_cannot_extend_the_deadline():
    async def work() -> None:
        async with serving(deadline=0.05) as service:
            service.signal(signal.SIGSTOP)
            with pytest.raises(DeadlineExceeded):
                await service.generate("spelling", ["a"], {}, deadline=1_000.0)
            service.signal(signal.SIGCONT)

    run(work())


def test_a_worker_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_scheduler, "HANG_SECONDS", 0.05)

    async def work() -> None:
        async with serving() as service:
            (hung,) = service.workers
            service.signal(signal.SIGSTOP)
            with pytest.raises(DeadlineExceeded):
                await service.generate("spelling", ["a"], {}, deadline=0.05)
            await until(lambda: service.workers and service.workers != [hung])
            await until(lambda: is_gone(hung))
            await until(lambda: service.events.of("worker_died"))
            assert service.events.of("worker_died") == [("spelling", hung, -signal.SIGKILL)]
            found = await service.generate("spelling", ["a"], {})
            assert approximately(facts(found), offline(["a"]))

    run(work())


def test_a_slow_worker_lives_until_the_last_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_scheduler, "HANG_SECONDS", 0.0)

    async def work() -> None:
        async with serving() as service:
            (pid,) = service.workers
            service.signal(signal.SIGSTOP)
            blocking = asyncio.create_task(service.generate("spelling", ["x"], {}))
            await until(lambda: service.events.of("started"))
            with pytest.raises(DeadlineExceeded):
                await service.generate("spelling", ["a"], {}, deadline=0.05)
            assert process_state(pid) == "T"
            service.signal(signal.SIGCONT)
            assert approximately(facts(await blocking), offline(["x"]))
            assert service.workers == [pid]

    run(work())


def test_a_cancelled_request_leaves_the_queue():
    async def work() -> None:
        async with serving() as service:
            service.signal(signal.SIGSTOP)
            running = asyncio.create_task(service.generate("spelling", ["running"], {}))
            await until(lambda: service.events.of("started"))
            gone = [
                asyncio.create_task(service.generate("spelling", words(5), {})) for _ in range(3)
            ]
            kept = asyncio.create_task(service.generate("spelling", words(4), {}))
            await until(lambda: service.waiting["spelling"] == 19)
            for task in [*gone, running]:
                task.cancel()
            await until(lambda: service.waiting["spelling"] == 4)
            service.signal(signal.SIGCONT)
            assert approximately(facts(await kept), offline(words(4)))
            assert [count for _, count, _, _ in service.events.of("started")] == [1, 4]
            assert service.events.of("rejected") == [("spelling", "cancelled")] * 4

    run(work())
