"""What a worker needs: no torch, one thread for search, and little memory."""

import asyncio
from pathlib import Path

import pytest

from tests.serve.service_helpers import run, serving, words

MOST = 60  # megabytes of a worker with the small model in int8


def megabytes(pid: int, file: str, name: str) -> float:
    """A figure of a process in megabytes."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) / 1_024 for line in lines if line.startswith(f"{name}:"))


@pytest.mark.parametrize("int8", [True, False])
def test_workers_are_small_and_without_torch(int8: bool):
    async def work() -> None:
        async with serving(int8=int8, workers=2) as service:
            texts = words(200)
            await asyncio.gather(
                service.generate("spelling", texts, {}, alignment=True),
                service.generate("spelling", texts, {"n_best": 4}),
                *(service.generate("spelling", [text], {}) for text in texts),
            )
            assert service.models["spelling"].engine == "native"
            for pid in service.workers:
                assert "torch" not in Path(f"/proc/{pid}/maps").read_text()
                assert megabytes(pid, "status", "VmRSS") <= MOST + (0 if int8 else 10)
                assert megabytes(pid, "smaps_rollup", "Pss") <= 45

    run(work())


def test_memory_does_not_grow_with_the_texts():
    async def work() -> None:
        async with serving(int8=True) as service:
            (pid,) = service.workers
            texts = words(1_200)

            async def send(start: int, stop: int) -> float:
                for at in range(start, stop, 8):
                    await service.generate("spelling", texts[at : at + 8], {})
                return megabytes(pid, "status", "RssAnon")

            before, after = await send(0, 400), await send(400, 1_200)
            assert after < 1.1 * before

    run(work())


def test_a_worker_searches_in_one_thread():
    async def work() -> None:
        async with serving() as service:
            (pid,) = service.workers
            call = asyncio.create_task(service.generate("spelling", words(400), {}))
            most = 0
            while not call.done():
                most = max(most, int(megabytes(pid, "status", "Threads") * 1_024))
                await asyncio.sleep(0)
            await call
            # The search, the main thread, which waits for it and for signals, and the thread that
            # waits for the end of the service.
            assert most == 3

    run(work())
