"""Answers of the service against offline prediction, and how texts are put into batches."""

import asyncio
import signal
from typing import Any

import pytest

from regard.serve.service import ModelSpec, Service
from tests.serve.service_helpers import (
    RECURRENT,
    SPELLING,
    RecordedEvents,
    approximately,
    decoded,
    facts,
    offline,
    pipeline,
    run,
    serving,
    until,
    words,
)

OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 1},
    {"beam": 8, "n_best": 3, "length_penalty": 1.0},
    {"prefix": "K", "ban": ["AH"], "require": ["T"]},
    {"sample": True, "seed": 5, "temperature": 0.7, "n_best": 2},
    {"no_repeat_ngram": 2, "repetition_penalty": 1.3, "max_length": 6, "min_length": 2},
]


def test_answers_are_those_of_offline_prediction():
    texts = [*words(9), "", "  padded ", "naïve 123"]

    async def work() -> None:
        async with serving(workers=2) as service:
            ways = OPTIONS * 2
            calls = (service.generate("spelling", texts, options) for options in ways)
            for options, found in zip(ways, await asyncio.gather(*calls), strict=True):
                assert approximately(facts(found), offline(texts, **options)), options

    run(work())


def test_an_answer_has_all_its_fields():
    async def work() -> None:
        async with serving() as service:
            ((found,),) = await service.generate("spelling", ["att3ntion"], {})
            expected = pipeline()("att3ntion")
            assert found["tokens"] == expected.tokens
            assert found["logps"] == pytest.approx(expected.logps, abs=1e-5)
            assert found["logp"] == pytest.approx(sum(expected.logps), abs=1e-5)
            assert found["score"] == pytest.approx(expected.score, abs=1e-5)
            assert found["confidence"] == pytest.approx(2.718281828 ** found["logp"], abs=1e-5)
            assert found["unknown"] == expected.unknown
            assert "alignment" not in found
            raw = await service.generate_json("spelling", ["att3ntion"], {})
            assert decoded(raw) == [[found]]

    run(work())


def test_texts_of_a_request_are_spread_in_order():
    texts = words(32)

    async def work() -> None:
        async with serving(workers=2) as service:
            found = await service.generate("spelling", texts, {})
            assert approximately(facts(found), offline(texts))
            batches = [started[1] for started in service.events.of("started")]
            assert len(batches) == 2
            assert max(batches) <= 20  # neither worker has much more than half

    run(work())


def test_a_text_for_an_idle_service_never_waits():
    async def work() -> None:
        async with serving(workers=2, batch_wait=1_000.0) as service:
            found = await service.generate("spelling", ["word"], {})
            assert approximately(facts(found), offline(["word"]))

    run(work())


def test_texts_that_wait_share_a_batch():
    texts = words(12)

    async def work() -> None:
        async with serving() as service:
            service.signal(signal.SIGSTOP)
            calls = [
                asyncio.create_task(service.generate("spelling", [t], {})) for t in ["a", *texts]
            ]
            await until(lambda: service.waiting["spelling"] <= len(texts))
            service.signal(signal.SIGCONT)
            found = [answers for (answers,) in await asyncio.gather(*calls)]
            assert approximately(facts(found), offline(["a", *texts]))
            batches = [started[1] for started in service.events.of("started")]
            assert sum(batches) == 13
            assert len(batches) <= 3

    run(work())


def test_batches_keep_the_token_budget():
    texts = words(60)

    async def work() -> None:
        async with serving(batch_tokens=30) as service:
            found = await service.generate("spelling", texts, {})
            assert approximately(facts(found), offline(texts))
            for _, count, _tokens, _waited in service.events.of("started"):
                assert count <= 15

    run(work())


def test_several_models_are_served_by_name():
    async def work() -> None:
        specs = [ModelSpec("one", SPELLING), ModelSpec("two", RECURRENT)]
        service = Service(specs, workers=1, events=RecordedEvents())
        await service.start()
        for name, folder in (("one", SPELLING), ("two", RECURRENT)):
            found = await service.generate(name, ["naphtha"], {})
            assert approximately(facts(found), offline(["naphtha"], folder))
            assert service.models[name].fingerprint
        assert service.models["one"].fingerprint != service.models["two"].fingerprint
        await service.drain()

    run(work())


def test_no_texts_have_no_answers():
    async def work() -> None:
        async with serving() as service:
            assert await service.generate("spelling", [], {}) == []

    run(work())


@pytest.mark.parametrize("folder", [SPELLING, RECURRENT])
def test_alignments_are_those_of_torch(folder: Any):
    texts = ["attention", "through", ""]

    async def work() -> None:
        async with serving(folder) as service:
            found = await service.generate("spelling", texts, {"n_best": 2}, alignment=True)
            for text, answers in zip(texts, found, strict=True):
                for answer, best in zip(answers, pipeline(folder).best(text, 2), strict=True):
                    aligned = pipeline(folder).with_attention(best, alignment=True).alignment
                    most = [] if aligned is None or not text else aligned[:-1].argmax(1).tolist()
                    links = [[i, j] for j, i in enumerate(most) if i < len(text)]
                    assert answer["alignment"] == links

    run(work())
