"""What the service refuses: limits, options, models; each error names what is wrong."""

import asyncio
import signal
from typing import Any

import pytest

from regard.serve.service_errors import (
    InvalidRequest,
    QueueFull,
    ServiceError,
    TooLarge,
    UnknownModel,
)
from tests.serve.service_helpers import approximately, facts, offline, run, serving, until, words


def test_a_full_queue_says_when_to_come_back():
    async def work() -> None:
        async with serving(queue_texts=10, batch_tokens=1) as service:
            await service.generate("spelling", ["warm"], {})
            service.signal(signal.SIGSTOP)
            accepted = asyncio.create_task(service.generate("spelling", words(10), {}))
            await until(lambda: service.events.of("started")[1:])
            with pytest.raises(QueueFull, match="9 texts wait for model 'spelling'") as full:
                await service.generate("spelling", words(2), {})
            assert (full.value.status, full.value.retry_after) == (429, 1.0)
            service.signal(signal.SIGCONT)
            assert approximately(facts(await accepted), offline(words(10)))
            assert service.events.of("rejected") == [("spelling", "queue_full")]

    run(work())


def test_a_queue_longer_than_the_deadline_is_full():
    async def work() -> None:
        async with serving(queue_texts=100_000, texts_per_request=100_000) as service:
            await service.generate("spelling", words(20), {})  # now its rate is known
            service.signal(signal.SIGSTOP)
            texts = words(1_000) * 20
            accepted = asyncio.create_task(service.generate("spelling", texts, {}))
            await until(lambda: service.waiting["spelling"])
            with pytest.raises(QueueFull) as full:
                await service.generate("spelling", ["late"], {}, deadline=0.01)
            assert full.value.retry_after >= 1.0
            accepted.cancel()
            service.signal(signal.SIGCONT)

    run(work())


CASES: list[tuple[type[ServiceError], str, list[Any], dict[str, Any]]] = [
    (TooLarge, "4 texts, beyond the limit of 3", ["a"] * 4, {}),
    (TooLarge, "text 1 has 21 characters, beyond the limit of 20", ["a", "b" * 21], {}),
    (InvalidRequest, "text 0 is not a string", [5], {}),
    (InvalidRequest, "text 0 is not a string of Unicode", ["\ud800"], {}),
    (InvalidRequest, "did you mean 'beam'", ["a"], {"beem": 2}),
    (InvalidRequest, "beam must be an integer; got '4'", ["a"], {"beam": "4"}),
    (InvalidRequest, "beam must be an integer; got True", ["a"], {"beam": True}),
    (InvalidRequest, "beam must be an integer of at least 1; got 0", ["a"], {"beam": 0}),
    (InvalidRequest, "beam is 9, beyond the limit of 8", ["a"], {"beam": 9}),
    (InvalidRequest, "n_best is 9, beyond the limit of 8", ["a"], {"n_best": 9}),
    (InvalidRequest, "n_best is 9", ["a"], {"n_best": 9, "sample": True}),
    (InvalidRequest, "length_penalty must be a finite number", ["a"], {"length_penalty": 1e999}),
    (InvalidRequest, "temperature must be a finite", ["a"], {"sample": True, "temperature": "hot"}),
    (InvalidRequest, "temperature must be above 0", ["a"], {"sample": True, "temperature": -1}),
    (InvalidRequest, "ban must be a list of words", ["a"], {"ban": [3]}),
    (InvalidRequest, "prefix must be a text", ["a"], {"prefix": "\udc00"}),
    (InvalidRequest, "sample must be true or false", ["a"], {"sample": 1}),
    (InvalidRequest, "seed applies to sampling only", ["a"], {"seed": 2}),
    (InvalidRequest, "the target vocabulary lacks", ["a"], {"prefix": "☃"}),
    (InvalidRequest, "max_length must be at least 0", ["a"], {"max_length": -1}),
    (InvalidRequest, "text 1: no output for 'b' satisfies", ["", "b"], {"min_length": 10_000}),
]


def test_requests_beyond_a_limit_name_it():
    async def work() -> None:
        async with serving(texts_per_request=3, characters_per_text=20, beam=8) as service:
            for kind, message, texts, options in CASES:
                with pytest.raises(kind) as caught:
                    await service.generate("spelling", texts, options)
                assert message in str(caught.value)
                assert "\n" not in str(caught.value)
                assert caught.value.status in (413, 422)
            assert len(service.events.of("rejected")) == len(CASES)
            assert service.events.of("worker_died") == []

    run(work())


@pytest.mark.parametrize("deadline", [0, -1, "soon", True, float("nan")])
def test_a_deadline_is_a_positive_number(deadline: Any):
    async def work() -> None:
        async with serving() as service:
            with pytest.raises(InvalidRequest, match="deadline must be a number of seconds"):
                await service.generate("spelling", ["a"], {}, deadline=deadline)

    run(work())


def test_an_unknown_model_is_named():
    async def work() -> None:
        async with serving() as service:
            with pytest.raises(UnknownModel, match="unknown model 'speling'; did you mean"):
                await service.generate("speling", ["a"], {})
            with pytest.raises(UnknownModel):
                service.stream("nothing", "a", {})

    run(work())


def test_a_text_without_output_harms_no_other_request():
    """Both share a batch: with require, one text has no output within the length limit."""
    options = {"require": ["SH"], "max_length": 2}

    async def work() -> None:
        async with serving() as service:
            service.signal(signal.SIGSTOP)
            first = asyncio.create_task(service.generate("spelling", ["x"], {}))
            await until(lambda: service.events.of("started"))
            good = asyncio.create_task(service.generate("spelling", ["she"], options))
            bad = asyncio.create_task(
                service.generate(
                    "spelling",
                    ["", "she"],
                    {**options, "max_length": 2, "min_length": 2, "ban": ["SH"]},
                )
            )
            await until(lambda: service.waiting["spelling"] == 3)
            service.signal(signal.SIGCONT)
            assert approximately(facts(await good), offline(["she"], **options))
            with pytest.raises(InvalidRequest, match="no output for 'she'"):
                await bad
            await first

    run(work())
