"""The queue: order of requests, budgets, options and what happens to lost batches."""

import asyncio
from typing import Any

from regard.serve.request_queue import TEXT_COST, QueuedRequest, RequestQueue, TextBatch
from tests.serve.service_helpers import run


def request(
    *texts: str, key: str = "", arrived: float = 0.0, deadline: float = 9.0
) -> QueuedRequest:
    future: Any = asyncio.get_running_loop().create_future()
    return QueuedRequest(texts, key, "{}", future, arrived, deadline)


def taken(batch: TextBatch) -> list[str]:
    return [t for part in batch.parts for t in part.request.texts[part.start : part.stop]]


def cost(*texts: str) -> float:
    return sum(len(text) + TEXT_COST for text in texts)


def queue_of(*requests: QueuedRequest) -> RequestQueue:
    queue = RequestQueue()
    for one in requests:
        queue.add(one)
    return queue


def test_the_longest_waiting_request_comes_first():
    async def work() -> None:
        queue = queue_of(request("a", key="x"), request("b", key="y"), request("c", key="x"))
        assert taken(queue.take(100, None)) == ["a", "c"]
        assert taken(queue.take(100, None)) == ["b"]
        assert not queue

    run(work())


def test_different_options_never_share_a_batch():
    async def work() -> None:
        queue = queue_of(*(request(f"{i}", key=str(i % 3)) for i in range(30)))
        while queue:
            batch = queue.take(20, None)
            assert len({part.request.key for part in batch.parts}) == 1

    run(work())


def test_a_request_is_split_by_the_budget_in_order():
    async def work() -> None:
        queue = queue_of(request(*"abcdefg"), request("h"))
        found = []
        while queue:
            batch = queue.take(cost("a", "b", "c"), None)
            assert batch.cost == cost(*taken(batch)) <= cost("a", "b", "c")
            found.append(taken(batch))
        assert found == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]

    run(work())


def test_a_text_beyond_the_budget_still_runs():
    async def work() -> None:
        queue = queue_of(request("x" * 1_000, "y"))
        assert taken(queue.take(10, None)) == ["x" * 1_000]
        assert taken(queue.take(10, None)) == ["y"]

    run(work())


def test_sums_are_those_of_the_waiting_texts():
    async def work() -> None:
        one, two = request(*"abcd"), request("longer", "texts", key="x")
        queue = queue_of(one, two)
        assert (queue.texts, queue.cost) == (6, cost(*"abcd", "longer", "texts"))
        batch = queue.take(cost("a"), None)
        assert (queue.texts, queue.cost) == (5, cost(*"bcd", "longer", "texts"))
        queue.remove(two)
        queue.put_back(batch.parts[0], 1)
        assert (queue.texts, queue.cost) == (4, cost(*"abcd"))
        queue.remove(one)
        assert (queue.texts, queue.cost, bool(queue)) == (0, 0, False)

    run(work())


def test_lost_texts_come_first_and_run_alone():
    async def work() -> None:
        queue = queue_of(request("a"), request("b"), request("c"))
        lost = queue.take(cost("a", "b"), None)
        queue.add(request("d"))
        for part in lost.parts:
            queue.put_back(part, 1)
        found = []
        while queue:
            batch = queue.take(100, None)
            found.append((taken(batch), batch.parts[0].attempts))
        assert found == [(["b"], 1), (["a"], 1), (["c", "d"], 0)]

    run(work())


def test_another_model_starts_a_request_again():
    async def work() -> None:
        one = request(*"abc")
        queue = queue_of(one)
        first = queue.take(cost("a"), "old")
        again = queue.take(100, "new")
        assert taken(again) == ["a", "b", "c"]
        assert first.parts[0].version != again.parts[0].version == one.version

    run(work())


def test_the_deadline_of_a_batch_is_its_last_one():
    async def work() -> None:
        queue = queue_of(request("a", deadline=3.0), request("b", deadline=5.0))
        assert queue.take(100, None).deadline == 5.0

    run(work())
