"""Processes that are killed: no request is lost, answered wrongly or answered twice."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.serve import loader_process
from regard.serve.service_errors import WorkerLost
from tests.serve.service_helpers import (
    SPELLING,
    RunningService,
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

KILLS, CLIENTS = 15, 6


class Load:
    """Clients that send requests without pause, and compare every answer."""

    def __init__(self, service: RunningService, clients: int = CLIENTS) -> None:
        self.service = service
        self.texts = words(150)
        self.expected = dict(zip(self.texts, offline(self.texts), strict=True))
        self.answered, self.rejected, self.running = 0, 0, True
        self.sent, self.open = 0, set[int]()
        self._clients = [asyncio.create_task(self._client(seed)) for seed in range(clients)]

    async def stop(self) -> None:
        """Wait for the last answers; raises if one was wrong or missing."""
        self.running = False
        await asyncio.gather(*self._clients)

    async def answer(self, count: int) -> None:
        """Wait until so many more requests are answered."""
        wanted = self.answered + count
        await until(lambda: self.answered >= wanted)

    async def answer_all_sent(self) -> None:
        """Wait until every request sent before now is answered or rejected."""
        last = self.sent
        await until(lambda: all(number > last for number in self.open))

    async def _client(self, seed: int) -> None:
        chance = random.Random(seed)
        while self.running:
            texts = chance.sample(self.texts, chance.choice([1, 1, 3, 20]))
            self.sent += 1
            self.open.add(number := self.sent)
            try:
                found = await self.service.generate("spelling", texts, {})
            except WorkerLost:
                self.rejected += 1
                continue
            finally:
                self.open.discard(number)
            assert approximately(facts(found), [self.expected[text] for text in texts])
            self.answered += 1


def test_killed_workers_lose_no_request():
    async def work() -> None:
        async with serving(workers=2) as service:
            load, chance = Load(service), random.Random(1)
            killed = set[int]()
            while len(killed) < KILLS:
                await until(lambda: set(service.workers) - killed)
                pid = chance.choice([pid for pid in service.workers if pid not in killed])
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                # a request that loses several workers is rejected: none may lose a second one
                await load.answer_all_sent()
            await load.stop()
            await until(lambda: len(service.workers) == 2)
            await until(lambda: len(service.events.of("worker_died")) == KILLS)
            assert {pid for _, pid, _ in service.events.of("worker_died")} == killed
            assert all(map(is_gone, killed))
            assert load.rejected == 0
            queued = sum(texts for _, texts in service.events.of("queued"))
            assert queued >= load.answered
            assert service.waiting["spelling"] == 0

    run(work())


def test_a_killed_loader_is_replaced_under_load():
    async def work() -> None:
        async with serving(workers=2) as service:
            load = Load(service)
            for _ in range(2):
                old = service.loader_pids["spelling"]
                assert old
                os.kill(old, signal.SIGKILL)
                await until(lambda old=old: service.loader_pids["spelling"] not in (None, old))
                await load.answer(1)
                await until(lambda old=old: is_gone(old))
            await load.stop()
            assert load.rejected == 0
            for pid in service.workers:
                os.kill(pid, signal.SIGKILL)
            found = await service.generate("spelling", ["again"], {})
            assert approximately(facts(found), offline(["again"]))

    run(work())


def test_a_batch_that_no_worker_read_is_never_rejected():
    """Workers that are dead already when a batch is sent do not count against it."""

    async def work() -> None:
        async with serving(workers=3) as service:
            for _ in range(3):
                service.signal(signal.SIGKILL)  # all at once, and not yet noticed
                found = await service.generate("spelling", ["x"], {})
                assert approximately(facts(found), offline(["x"]))

    run(work())


POISON = "poison"
KILLER = """
import os, signal
from regard.pipeline import Pipeline
from regard.serve import model_loader
answers = Pipeline.answers
def deadly(self, texts, *arguments, **options):
    if {poison!r} in texts:
        os.kill(os.getpid(), signal.SIGKILL)
    return answers(self, texts, *arguments, **options)
Pipeline.answers = deadly
model_loader.main()
"""


def test_a_request_that_kills_workers_is_rejected(monkeypatch: pytest.MonkeyPatch):
    """It kills two workers and is rejected; requests that shared its batch are answered."""
    command = [sys.executable, "-c", KILLER.format(poison=POISON)]
    monkeypatch.setattr(loader_process, "COMMAND", command)

    async def work() -> None:
        async with serving() as service:
            service.signal(signal.SIGSTOP)
            first = asyncio.create_task(service.generate("spelling", ["first"], {}))
            await until(lambda: service.events.of("started"))
            texts = ["a", "b", POISON, "c"]
            calls = [asyncio.create_task(service.generate("spelling", [t], {})) for t in texts]
            await until(lambda: service.waiting["spelling"] == 4)
            service.signal(signal.SIGCONT)
            found = await asyncio.gather(first, *calls, return_exceptions=True)
            lost = found.pop(3)
            assert isinstance(lost, WorkerLost)
            assert (lost.status, "\n" in str(lost)) == (503, False)
            expected = offline(["first", "a", "b", "c"])
            assert approximately(facts([answers for (answers,) in found]), expected)
            await until(lambda: len(service.events.of("worker_died")) == 2)

    run(work())


SOLO = """
from regard.serve import model_loader
load = model_loader.ModelLoader._load
model_loader.ModelLoader._load = lambda *a, **k: {**load(*a, **k), "device": "cuda"}
model_loader.main()
"""


def test_a_loader_on_a_gpu_is_the_only_worker(monkeypatch: pytest.MonkeyPatch):
    """The state of a GPU does not survive a fork; a process that died is loaded again."""
    monkeypatch.setattr(loader_process, "COMMAND", [sys.executable, "-c", SOLO])

    async def work() -> None:
        async with serving(workers=4) as service:
            load = Load(service, clients=3)
            for _ in range(2):
                (pid,) = service.workers
                assert pid == service.loader_pids["spelling"]
                await load.answer(20)
                os.kill(pid, signal.SIGKILL)
                await until(lambda pid=pid: service.workers not in ([], [pid]))
            await load.answer(20)
            await load.stop()
            assert load.rejected == 0
            await until(lambda: len(service.events.of("worker_died")) == 2)

    run(work())


def test_workers_inherit_only_their_own_socket():
    async def work() -> None:
        with open(SPELLING / "card.json", "rb") as file:
            os.set_inheritable(file.fileno(), True)
            async with serving(workers=3) as service:
                for pid in service.workers:
                    files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
                    assert len([name for name in files if name.startswith("socket:")]) == 1
                    assert not [name for name in files if name.endswith("card.json")]

    run(work())


def test_file_descriptors_and_processes_do_not_leak():
    async def work() -> None:
        async with serving(workers=2) as service:
            await service.generate("spelling", ["warm"], {})
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                known = len(service.events.of("worker_died"))
                service.signal(signal.SIGKILL)
                await until(lambda known=known: len(service.events.of("worker_died")) == known + 2)
                await until(lambda: len(service.workers) == 2)
                await service.generate("spelling", ["one", "two"], {})  # both start well
            await service.reload("spelling")
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
            loader = service.loader_pids["spelling"]
            children = Path(f"/proc/{loader}/task/{loader}/children").read_text().split()
            assert sorted(map(int, children)) == sorted(service.workers)

    run(work())


SCRIPT = """
import asyncio, sys
from tests.serve.service_helpers import serving
async def main():
    async with serving(workers=2) as service:
        print(*service.workers, service.loader_pids["spelling"], flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_workers_end_when_the_service_disappears():
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout
        pids = list(map(int, process.stdout.readline().split()))
        assert len(pids) == 3
        process.kill()

    async def work() -> None:
        await until(lambda: all(process_state(pid) in (None, "Z") for pid in pids))

    run(work())
