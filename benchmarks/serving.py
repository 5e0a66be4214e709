"""`regard serve` under load, on loopback: throughput, latency, overload, faults and a long run.

    python benchmarks/serving.py                         # everything; about an hour
    python benchmarks/serving.py --parts speed           # or overload, faults, soak, memory

Speed is measured with wrk (closed loop, and with random pauses for half of the capacity). In
overload, faults and soak, clients compare every output with offline prediction. Small: the
included spelling model on dictionary words. Base: 512 wide, 6 + 6 layers, random weights, 24 words.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Mapping

from harness import Check, report
from serving_clients import Connection, Load
from serving_faults import all_faults
from serving_host import Host, Watch, memory_of
from serving_speed import base_model, base_texts, fact, measure_speed

import regard
from regard.training.cmudict import dictionary, part
from regard.web.http_limits import HttpLimits

MODEL, OTHER = "spelling", "spelling-recurrent"
CONNECTION_MEGABYTES = 0.05  # of a connection with a small request
PARTS = ("speed", "memory", "overload", "faults", "soak")


def dictionary_words(count: int) -> list[str]:
    """Words of the dictionary's test part."""
    found = sorted({word for word, _ in dictionary() if part(word) == "test"})
    random.Random(3).shuffle(found)
    return found[:count]


def offline(model: str, texts: list[str]) -> dict[str, list[str]]:
    """The output of each text by offline prediction."""
    return {one.source: [one.text] for one in regard.load(model).many(texts)}


def measure_memory() -> list[Check]:
    """Memory of a worker with the small model in int8, after some requests."""
    words = dictionary_words(1_000)
    with Host(MODEL, "--int8", "--workers", "2") as host:
        asyncio.run(Load(host.port, offline(MODEL, words), size=8).closed(8, 5.0))
        found = {
            kind: max(memory_of(pid, kind) for pid in host.workers()) for kind in ("Pss", "Rss")
        }
        total = host.memory()
    return [
        Check(
            "memory of a worker, small model in int8, PSS in MB",
            found["Pss"],
            None,
            60.0,
            found["Pss"] <= 60,
        ),
        fact("memory of a worker, RSS (shared pages included) in MB", found["Rss"]),
        fact("memory of the server and two workers in MB", total),
    ]


def measure_overload(seconds: float) -> list[Check]:
    """Twice the capacity: memory, outputs, rejections, latency, and the time to recover."""
    expected, size = offline(MODEL, dictionary_words(3_000)), 8
    with Host(MODEL) as host:
        normal = asyncio.run(Load(host.port, expected, size=size).closed(1, 5.0))
        capacity = asyncio.run(Load(host.port, expected, size=size).closed(32, 15.0))
        rate = len(capacity.times) / (capacity.times[-1] - capacity.times[0])
        print(f"capacity: {rate:,.0f} requests of {size} texts per second", flush=True)
        watch = Watch(host)
        watch.start()
        before = host.memory()
        tally = asyncio.run(Load(host.port, expected, size=size).open(2 * rate, seconds))
        recovery = asyncio.run(recover(host, expected, size, 5 * normal.percentile(0.5)))
        samples = watch.stop()
    print(tally.sent, tally.answered, dict(tally.statuses), tally.lost, tally.wrong)
    half = len(samples) // 2
    growth = max(s[1] for s in samples[half:]) / max(s[1] for s in samples[:half])
    clear = tally.answered + tally.statuses[429] == tally.sent
    p99, most = tally.percentile(0.99), max(s[1] for s in samples)
    bound = before + HttpLimits().connections * CONNECTION_MEGABYTES
    return [
        Check(
            "overload: requests neither answered nor rejected with 429",
            tally.sent - tally.answered - tally.statuses[429],
            0,
            0,
            clear,
        ),
        Check(
            "overload: wrong outputs",
            tally.wrong + tally.duplicated,
            0,
            0,
            tally.wrong + tally.duplicated == 0,
        ),
        fact("overload: share of requests answered", tally.answered / tally.sent, 0.5),
        Check("overload: p99 of accepted requests in s", p99, None, 30.0, p99 <= 30.0),
        Check("overload: memory at most, in MB", most, None, bound, most <= bound),
        fact("overload: memory, second half over first half", growth),
        Check(
            "overload: seconds until latency is normal again", recovery, None, 5.0, recovery <= 5.0
        ),
    ]


async def recover(host: Host, expected: Mapping[str, list[str]], size: int, normal: float) -> float:
    """Seconds until a request takes at most `normal` seconds."""
    load, start = Load(host.port, expected, size=size), time.monotonic()
    connection = Connection(host.port)
    while time.monotonic() < start + 60:
        await load.ask(connection)
        if load.tally.latencies and load.tally.latencies[-1] <= normal:
            break
    connection.close()
    return time.monotonic() - start


def measure_soak(seconds: float) -> list[Check]:
    """70 % of the capacity for a long time: memory and file descriptors."""
    expected = offline(MODEL, dictionary_words(3_000))
    with Host(MODEL) as host:
        capacity = asyncio.run(Load(host.port, expected).closed(32, 20.0))
        rate = len(capacity.times) / (capacity.times[-1] - capacity.times[0])
        watch = Watch(host)
        watch.start()
        tally = asyncio.run(Load(host.port, expected).open(0.7 * rate, seconds))
        samples = watch.stop()
    print(tally.sent, tally.answered, dict(tally.statuses), tally.lost, tally.wrong)
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 3 * tenth], samples[-2 * tenth :]
    memory = statistics.median(s[1] for s in late) / statistics.median(s[1] for s in early)
    files = statistics.median(s[2] for s in late) / statistics.median(s[2] for s in early)
    good = tally.faults == 0 and tally.answered == tally.sent
    minutes = seconds / 60
    return [
        Check(
            f"soak, {minutes:.0f} minutes: requests without the right output",
            tally.sent - tally.answered,
            0,
            0,
            good,
        ),
        Check("soak: memory at the end over the beginning", memory, 1.0, 1.02, memory <= 1.02),
        Check(
            "soak: file descriptors at the end over the beginning", files, 1.0, 1.02, files <= 1.02
        ),
        fact("soak: p99 in ms", 1e3 * tally.percentile(0.99)),
    ]


def measure_faults(seconds: float) -> list[Check]:
    """Every fault, under load."""
    words = dictionary_words(2_000)
    first, second = offline(MODEL, words), offline(OTHER, words)
    both = {word: [*first[word], *second[word]] for word in words}
    return all_faults(MODEL, OTHER, first, both, seconds)


def main() -> None:
    """Run the chosen parts and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="+", choices=("small", "base"), default=("small", "base"))
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system")
    parser.add_argument("--seconds", type=float, default=10, help="of one measurement of speed")
    parser.add_argument("--fault-seconds", type=float, default=30, help="of each fault")
    parser.add_argument("--overload-seconds", type=float, default=300)
    parser.add_argument("--soak-seconds", type=float, default=1_800)
    options = parser.parse_args()
    checks = []
    if "speed" in options.parts:
        timing = options.rounds, options.seconds
        if "small" in options.models:
            checks += measure_speed("small", MODEL, dictionary_words(4_000), {}, *timing)
        if "base" in options.models:
            texts, length = base_texts()
            with base_model() as folder:
                timing = options.rounds, 4 * options.seconds
                checks += measure_speed("base", str(folder), texts, length, *timing)
    if "memory" in options.parts:
        checks += measure_memory()
    if "overload" in options.parts:
        checks += measure_overload(options.overload_seconds)
    if "faults" in options.parts:
        checks += measure_faults(options.fault_seconds)
    if "soak" in options.parts:
        checks += measure_soak(options.soak_seconds)
    report("serving", checks)


if __name__ == "__main__":
    main()
