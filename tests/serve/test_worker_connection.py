"""WorkerConnection: what a dead worker had read of its batch."""

import asyncio
import socket

import pytest

from regard.serve.request_queue import QueuedRequest, RequestQueue
from regard.serve.worker_connection import WorkerConnection


class Owner:
    """Notes how the connection ended."""

    def __init__(self) -> None:
        self.read_all = asyncio.get_running_loop().create_future()

    def worker_frame(self, worker, frame):
        """No worker of this test answers."""

    def worker_lost(self, worker, *, read_all):
        """Keep it."""
        self.read_all.set_result(read_all)


def batch():
    loop = asyncio.get_running_loop()
    queue = RequestQueue()
    queue.add(QueuedRequest(["x"], "key", "{}", loop.create_future(), 0.0, loop.time() + 60))
    return queue.take(100.0, None)


async def ended(act):
    """Open a connection, let `act(worker, peer)` end it, and return what its owner was told."""
    ours, peer = socket.socketpair()
    owner = Owner()
    worker = await WorkerConnection.open(owner, ours, 0, has_ended=lambda pid: True)
    await act(worker, peer)
    peer.close()
    return await asyncio.wait_for(owner.read_all, 30)


def run(worker):
    worker.run(batch(), asyncio.get_running_loop().time(), grace=60.0)


async def reads_its_batch(worker, peer):
    run(worker)
    peer.recv(65_536)


async def reads_nothing(worker, peer):
    run(worker)


async def is_dead_before_the_batch(worker, peer):
    peer.close()
    run(worker)


async def is_seen_dead_just_before_the_batch(worker, peer):
    noted = worker.eof_received

    def then_run():
        asyncio.get_running_loop().call_soon(
            run, worker
        )  # after the transport is closed, before it says so
        return noted()

    worker.eof_received = then_run


@pytest.mark.parametrize(
    ("act", "read_all"),
    [
        (reads_its_batch, True),
        (reads_nothing, False),
        (is_dead_before_the_batch, False),
        (is_seen_dead_just_before_the_batch, False),
    ],
)
def test_a_batch_counts_only_if_the_worker_read_it(act, read_all):
    assert asyncio.run(ended(act)) == read_all
