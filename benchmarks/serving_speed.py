"""Speed of `regard serve`: rates and latencies under wrk, beside bulk prediction and a constant
response of the same HTTP server."""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness import Check
from native_baseline import bundle_of
from native_subjects import LENGTH, VOCABULARY, base, small
from serving_host import Host
from serving_wrk import Wrk

import regard
from regard import bundle

CLIENTS, LIST = 64, 32


def body(texts: list[str], options: Mapping[str, object]) -> bytes:
    """A request: one text, or a list."""
    return json.dumps({"input": texts[0] if len(texts) == 1 else texts, **options}).encode()


def goal(name: str, value: float, ceiling: float, target: float | None) -> Check:
    """A figure that must reach its target, if it has one."""
    return Check(name, value, ceiling, target, target is None or value >= target)


def fact(name: str, value: float, ceiling: float | None = None) -> Check:
    """A figure without a target."""
    return Check(name, value, ceiling, None, True)


@contextmanager
def base_model() -> Iterator[Path]:
    """A bundle of the base size with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        subject = base(small())
        built = bundle_of(subject.settings, subject.sizes, subject.tensors)
        bundle.save(Path(folder, "base"), built)
        yield Path(folder, "base")


def measure_speed(
    name: str, model: str, texts: list[str], options: dict[str, object], rounds: int, seconds: float
) -> list[Check]:
    """Rates of lists and single texts beside bulk prediction and a constant response."""
    checks, chance = [], random.Random(4)
    clients = CLIENTS if name == "small" else CLIENTS // 8  # of lists: they must end in time
    lists = Wrk([body(chance.sample(texts, LIST), options) for _ in range(500)])
    singles = Wrk([body([text], options) for text in texts])
    for int8 in (True, False):
        kind = f"{name}, {'int8' if int8 else 'float32'}"
        pipeline = regard.load(model, precision="int8" if int8 else None, engine="native")
        with Host(model, *(["--int8"] if int8 else [])) as host, constant_host() as constant:
            ways = served(host, lists, singles, clients, seconds)
            ways["constant"] = served(constant, lists, singles, clients, seconds)["singles"]
            ways["bulk"] = lambda pipeline=pipeline: bulk_rate(pipeline, texts, options, seconds)
            rates = alternate(ways, rounds)
            checks += rate_checks(kind, rates, name == "small")
            checks += measure_latency(kind, host, singles, rates["singles"], rounds, seconds, name)
        others = {"one at a time": ["--batch-tokens", "1"]}
        if int8:
            others |= {"CTranslate2": ["--engine", "ctranslate2"]}
        for label, arguments in others.items():
            extra = ["--int8"] if int8 and label != "CTranslate2" else []
            try:
                with Host(model, *arguments, *extra) as host:
                    rates = alternate(served(host, lists, singles, clients, seconds), rounds)
            except SystemExit as error:
                print(f"{label}: {error}")
                continue
            for way in ("lists", "singles"):
                value = statistics.median(rates[way])
                checks.append(fact(f"{kind}: {label}, {way}, texts/s", value))
    return checks


def constant_host() -> Host:
    """The same HTTP server with a constant response."""
    program = Path(__file__).with_name("serving_constant.py")
    return Host(command=(sys.executable, str(program)))


def rate_checks(kind: str, rates: Mapping[str, list[float]], targets: bool) -> list[Check]:
    """The rates as shares of their ceilings.

    A single text costs the cores what its share of a constant response and of bulk prediction
    costs: that bounds the rate of single texts by arithmetic.
    """
    cores = len(os.sched_getaffinity(0))
    bulk, constant = statistics.median(rates["bulk"]), statistics.median(rates["constant"])
    single = statistics.median(rates["singles"])
    most = min(constant, cores / (1 / constant + cores / bulk))
    share = statistics.median(
        a / b for a, b in zip(rates["singles"], rates["constant"], strict=True)
    )
    top = most / constant
    lists = statistics.median(a / b for a, b in zip(rates["lists"], rates["bulk"], strict=True))
    return [
        fact(f"{kind}: bulk prediction, texts/s", bulk),
        fact(f"{kind}: constant response, requests/s", constant),
        fact(f"{kind}: single texts, texts/s", single, most),
        goal(f"{kind}: lists of {LIST}, share of bulk", lists, 1.0, 0.85 if targets else None),
        goal(f"{kind}: single texts, share of constant", share, top, 0.7 if targets else None),
    ]


def served(
    host: Host, lists: Wrk, singles: Wrk, clients: int, seconds: float
) -> dict[str, Callable[[], float]]:
    """The ways to load a server, each with the texts or requests per second that it measures."""
    at = host.address
    return {
        "lists": lambda: LIST * lists.run(at, clients=clients, seconds=seconds).rate,
        "singles": lambda: singles.run(at, clients=CLIENTS, seconds=seconds).rate,
    }


def alternate(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """The rates of each way in turns."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(way())
            print(f"  {name}: {rates[name][-1]:,.0f}/s", flush=True)
    return rates


def bulk_rate(
    pipeline: regard.Pipeline, texts: list[str], options: Mapping[str, object], seconds: float
) -> float:
    """Texts per second of offline prediction on all cores."""
    count, start = 0, time.monotonic()
    while time.monotonic() < start + seconds:
        count += sum(1 for _ in pipeline.many(texts[:4_000], **options))
    return count / (time.monotonic() - start)


def measure_latency(
    kind: str, host: Host, singles: Wrk, rates: list[float], rounds: int, seconds: float, name: str
) -> list[Check]:
    """p50 of one client, and p99 at half of the capacity."""
    alone, half = [], []
    pause = CLIENTS / (0.5 * statistics.median(rates))
    for _ in range(rounds):
        alone.append(1e3 * singles.run(host.address, clients=1, seconds=seconds).p50)
        found = singles.run(host.address, clients=CLIENTS, seconds=seconds, pause=pause)
        half.append(1e3 * found.p99)
    most = (5.0, 25.0) if name == "small" else (None, None)
    values = statistics.median(alone), statistics.median(half)
    names = f"{kind}: one client, p50 in ms", f"{kind}: half of the capacity, p99 in ms"
    return [
        Check(label, value, None, target, target is None or value <= target)
        for label, value, target in zip(names, values, most, strict=True)
    ]


def base_texts() -> tuple[list[str], dict[str, object]]:
    """Texts of the base model, and the options that give every output the same length."""
    chance = random.Random(5)
    ids = [chance.choices(range(3, VOCABULARY), k=LENGTH - 1) for _ in range(400)]
    length = {"min_length": LENGTH - 1, "max_length": LENGTH - 1}
    return [" ".join(f"{id:07}" for id in one) for one in ids], dict(length)
