"""Draining: accepted requests are answered, new ones refused, and all processes end."""

import asyncio
import signal

import pytest

from regard.serve.service_errors import Draining
from tests.serve.service_helpers import (
    approximately,
    facts,
    is_gone,
    offline,
    run,
    serving,
    until,
    words,
)


def test_accepted_requests_are_answered_before_the_end():
    async def work() -> None:
        async with serving(batch_tokens=20) as service:
            pids = [*service.workers, service.loader_pids["spelling"]]
            service.signal(signal.SIGSTOP)
            accepted = [
                asyncio.create_task(service.generate("spelling", words(7), {"beam": beam}))
                for beam in (1, 2, 3)
            ]
            await until(lambda: len(service.events.of("queued")) == 3)
            drained = asyncio.create_task(service.drain())
            await until(lambda: not service.ready)
            with pytest.raises(Draining) as refused:
                await service.generate("spelling", ["late"], {})
            assert (refused.value.status, refused.value.retry_after) == (503, 1.0)
            service.signal(signal.SIGCONT)
            for beam, found in zip((1, 2, 3), await asyncio.gather(*accepted), strict=True):
                assert approximately(facts(found), offline(words(7), beam=beam))
            await drained
            assert all(is_gone(pid) for pid in pids if pid)
            assert service.events.of("worker_died") == []

    run(work())


def test_draining_again_changes_nothing():
    async def work() -> None:
        async with serving() as service:
            assert service.ready
            await service.drain()
            await service.drain()
            assert not service.ready

    run(work())
