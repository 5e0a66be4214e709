"""Decoding speed: tokens/s of Regard, HF `generate`, CTranslate2 and a plain loop.

    python benchmarks/decoding.py                     # all cases: < 9 minutes
    python benchmarks/decoding.py --only small --quick
    python benchmarks/decoding.py --profile           # profile of Regard
 Regard, HF and CTranslate2 have the same weights. The small model is trained on the default task
for a minute first (or --bundle) and decodes unseen words. The base model has random weights and
forced lengths. End tokens do not count. All systems alternate, and ratios are taken round by
round. Each case has a time budget; if one round uses it up (64 sources, beam 4, base), that round
counts without a warm-up, and the column `rounds` is 0.
 The ceilings are for float32; int8 reads a quarter of the bytes. Arithmetic: every multiply-add at
the rate of a large matrix product. Bandwidth: every step reads the decoder weights and the KV
cache, at the measured rate of reading that many bytes.
"""

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from decoding_peers import CTranslate2, Generate, Ids, Loop, Regard, System, random_model, save
from harness import Check, machine, matmul_rate, median, report

from regard import bundle
from regard.config import PRESETS, TrainSettings, TransformerSettings
from regard.models import Transformer as RegardTransformer
from regard.text import END, Corpus
from regard.training import cmudict as demo
from regard.training.display import LineDisplay
from regard.training.run import Job, run

TURN, MOST = 0.25, 9  # seconds of a system's turn (at least one call); maximum rounds
HF, LOOP = "HF generate", "nn.Transformer"
NAMES = ("regard", HF, LOOP, "CT2 float32", "CT2 int8")
EXACT = (HF, "CT2 float32")  # must give the same outputs as Regard
BASE = {**PRESETS["transformer"]["base"], "tie_embeddings": "none"}
# As in Marian. Not tied: with random weights, tied embeddings repeat the first token.
SAME = {"position": "sinusoidal", "norm_order": "post", "activation": "relu", "dropout": 0.0}


@dataclass(frozen=True)
class Size:
    """A model and its task: about `letters` tokens in and out; the target is `wanted` × HF."""

    name: str
    model: RegardTransformer
    sources: Ids
    letters: int
    forced: int | None  # tokens of every output; None: the model generates the end
    seconds: dict[int, float]  # time budget of a case, by batch size
    wanted: float

    @property
    def settings(self) -> TransformerSettings:
        return self.model.settings


def small(folder: Path, given: Path | None, minutes: float) -> Size:
    """A model of the default task, and words of its test part."""
    if given is None:
        parts = demo.unpack(folder)
        train = TrainSettings(minutes=minutes, evaluations=1)
        job = Job(
            Corpus(parts["train"]),
            folder / "run",
            Corpus(parts["dev"]),
            size="tiny",
            model=SAME,
            train=train,
        )
        with open(os.devnull, "w") as nowhere:
            run(job, LineDisplay(nowhere))
        given = folder / "run" / "bundle"
    trained = bundle.load(given)
    words = dict.fromkeys(word for word, _ in demo.dictionary() if demo.part(word) == "test")
    sources = [trained.source.encode(word) for word in random.Random(1).sample(list(words), 64)]
    letters = round(statistics.mean(map(len, sources)))
    return Size("small", trained.model, sources, letters, None, {1: 12.0, 64: 12.0}, 4.0)


def base() -> Size:
    """Random weights, 25 tokens in and out."""
    chance = torch.Generator().manual_seed(1)
    sources = torch.randint(END + 1, 8_000, (64, 25), generator=chance).tolist()
    model = random_model(TransformerSettings(**BASE, **SAME), 8_000, 8_000)
    return Size("base", model, sources, 25, 25, {1: 30.0, 64: 115.0}, 1.5)


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    size: Size
    batch: int
    beam: int

    def __str__(self) -> str:
        search = "greedy" if self.beam == 1 else f"beam {self.beam}"
        return f"{self.size.name}, {self.batch:>2} × {search}"


def systems(size: Size, beam: int, folder: Path, threads: int) -> dict[str, System]:
    """The available systems by name, with the same weights."""
    model, forced = size.model, size.forced
    found: dict[str, System] = {
        "regard": Regard(model, forced, beam),
        HF: Generate(model, forced, beam),
    }
    if beam == 1:
        found[LOOP] = Loop(
            size.settings, *(len(side.table) for side in (model.source, model.target)), size.letters
        )
    if find_spec("ctranslate2"):
        if not (folder / size.name).exists():
            save(model, folder / size.name)
        for kind in ("float32", "int8"):
            found[f"CT2 {kind}"] = CTranslate2(
                folder / size.name, forced, beam, compute=kind, threads=threads
            )
    return found


def check_outputs(known: dict[str, System], size: Size, beam: int, count: int) -> None:
    """Print the share of outputs equal to Regard's. Under beam search CTranslate2 follows other
    rules (see decoding_peers), so only greedy outputs must be equal."""
    sources = size.sources[:count]
    found = {name: some.run(some.given(sources)) for name, some in known.items() if name != LOOP}
    outputs = {name: known[name].answers(some) for name, some in found.items()}
    lengths = {len(ids) for answers in outputs.values() for ids in answers}
    assert size.forced is None or lengths == {size.forced}, "lengths differ"
    equal = {
        name: statistics.mean(a == b for a, b in zip(outputs["regard"], outputs[name], strict=True))
        for name in outputs
    }
    shown = ", ".join(f"{name} {share:.0%}" for name, share in equal.items() if name != "regard")
    alone = statistics.mean(some.is_close for some in found["regard"])
    kind = "greedy" if beam == 1 else f"beam {beam}"
    print(f"{size.name}, {kind}, {count} sources: equal to Regard: {shown}")
    print(f"Regard searches {alone:.1%} again alone")
    wrong = [name for name in EXACT if equal.get(name, 1) < 0.9]
    if beam == 1 and wrong:
        raise SystemExit(f"{', '.join(wrong)}: outputs differ from Regard's; nothing was timed")


def speeds(
    known: dict[str, System], case: Case, budget: float
) -> tuple[dict[str, list[float]], int]:
    """Tokens/s of each round, and the number of rounds after the first, a warm-up."""
    sources = case.size.sources
    starts = range(0, max(1, len(sources) - case.batch + 1), case.batch)
    given = {
        name: [known[name].given(sources[at : at + case.batch]) for at in starts] for name in known
    }

    def turn(name: str, calls: int) -> float:
        work = given[name] * (calls // len(given[name]) + 1)
        return (
            median(lambda: [known[name].run(some) for some in work[:calls]], repeats=1, warmup=0)
            / calls
        )

    first = {name: turn(name, 1) for name in known}
    going = [
        name for name in known if name != LOOP or first[name] < budget / 6
    ]  # a slow loop runs once
    calls = {name: max(1, round(TURN / first[name])) for name in going}
    rounds = min(
        MOST, int((budget - sum(first.values())) / sum(first[name] * calls[name] for name in going))
    )
    found = {
        name: [] if name in going and rounds > 0 else [seconds] for name, seconds in first.items()
    }
    for place in range(rounds):
        shift = place % len(going)
        for name in going[shift:] + going[:shift]:
            found[name].append(turn(name, calls[name]))
    outputs = known["regard"].answers(known["regard"].run(known["regard"].given(sources)))
    tokens = case.batch * statistics.mean(map(len, outputs))
    return {name: [tokens / seconds for seconds in times] for name, times in found.items()}, max(
        0, rounds
    )


def ceilings(case: Case, rate: float) -> tuple[float, float]:
    """Tokens/s if only matrix products took time, and if only reading did. The first beam step has
    one row per source, and beams share the memory of the source."""
    settings, batch = case.size.settings, case.batch
    time_ = case.size.letters + 1  # of source and output, with end tokens
    width, decoder_layers = settings.width, settings.decoder_layers
    feed = 2 * width * settings.ffn_width
    encoder = settings.encoder_layers * (4 * width**2 + feed)
    remember = decoder_layers * 2 * width**2
    step = decoder_layers * (6 * width**2 + feed) + width * len(case.size.model.target.table)
    rows = [batch * (case.beam if place else 1) for place in range(time_)]
    past = sum(row * (place + 1) for place, row in enumerate(rows))
    maps = (
        2
        * width
        * (settings.encoder_layers * batch * time_**2 + decoder_layers * (past + sum(rows) * time_))
    )
    work = batch * time_ * (encoder + remember) + sum(rows) * step + maps
    cache = 2 * width * decoder_layers * (past + time_ * batch * time_)
    read = 4 * (encoder + remember + time_ * step + cache)
    tokens = batch * case.size.letters
    return tokens * rate / (2 * work), tokens * reading(read / time_) / read


def reading(size: float) -> float:
    """Bytes/s of repeatedly reading `size` bytes (at least 4 MB, to hide call overhead)."""
    table = torch.rand(int(max(4e6, size)) // 4)
    return 4 * len(table) / median(table.sum, repeats=31)


def row(case: Case, known: dict[str, System], budget: float, rate: float) -> Check:
    """Measure one case and print it."""
    found, rounds = speeds(known, case, budget)
    ratio = statistics.median(a / b for a, b in zip(found["regard"], found[HF], strict=True))
    middle = {name: statistics.median(found[name]) for name in found}
    arithmetic, bandwidth = ceilings(case, rate)
    cells = " ".join(
        f"{middle[name]:>14,.0f}" if name in middle else f"{'–':>14}" for name in NAMES
    )
    reached = middle["regard"] / min(arithmetic, bandwidth)
    limits = f"{arithmetic:>11,.0f} {bandwidth:>10,.0f} {reached:>10.0%}"
    print(f"{case!s:20} {cells} {ratio:>8.2f} × {limits} {rounds:>6}", flush=True)
    wanted = case.size.wanted
    return Check(
        f"{case}: over HF", ratio, min(arithmetic, bandwidth) / middle[HF], wanted, ratio >= wanted
    )


def cases(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Case, dict[str, System]]]:
    """All cases with their systems; outputs are compared before timing."""
    for size in sizes(options, folder):
        sides = {beam: systems(size, beam, folder, options.threads) for beam in (1, 4)}
        print()
        for beam, known in sides.items():
            check_outputs(
                known, size, beam, 4 if options.quick else 64 if size.name == "small" else 16
            )
        limits = f"{'arithmetic':>11} {'bandwidth':>10} {'of ceiling':>10}"
        names = " ".join(f"{name:>14}" for name in NAMES)
        print(f"\n{'tokens/s':20} {names} {'regard/HF':>10} {limits} {'rounds':>6}")
        for batch in (1, 8 if options.quick else 64):
            for beam, known in sides.items():
                yield Case(size, batch, beam), known


def sizes(options: argparse.Namespace, folder: Path) -> Iterator[Size]:
    """The requested sizes."""
    if options.only != "base":
        yield small(folder, options.bundle, options.minutes)
    if options.only != "small":
        yield base()


def profile(size: Size, options: argparse.Namespace) -> None:
    """Profile Regard on 64 sources, with one thread so that times add up."""
    torch.set_num_threads(1)
    count = 5 if options.quick else 40
    for beam in (1, 4):
        search = Regard(size.model, size.forced, beam).run
        plain = median(lambda search=search: search(size.sources), repeats=count)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            whole = median(
                lambda search=search: [search(size.sources) for _ in range(count)],
                repeats=1,
                warmup=0,
            )
            whole /= count
        averages = seen.key_averages()
        inside = sum(some.self_cpu_time_total for some in averages) / 1e6 / count
        print(
            f"\n{Case(size, 64, beam)}, one thread: {plain * 1e3:.1f} ms; under the profiler "
            f"{whole * 1e3:.1f} ms, of which {inside * 1e3:.1f} ms in "
            f"{sum(some.count for some in averages) // count:,} "
            f"operations and {1 - inside / whole:.0%} in Python outside of them"
        )
        print(averages.table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=50))


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="tokens/s in decoding, compared with three peers")
    parser.add_argument("--only", choices=("small", "base"), help="one size only")
    parser.add_argument(
        "--bundle", type=Path, help="a small model of the default task with Marian's architecture"
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="training time if no bundle is given"
    )
    parser.add_argument(
        "--quick", action="store_true", help="8 sources instead of 64 and a quarter of the time"
    )
    parser.add_argument("--threads", type=int, default=2, help="number of threads")
    parser.add_argument("--profile", action="store_true", help="profile Regard and stop")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.profile:
        with tempfile.TemporaryDirectory() as folder:
            return profile(small(Path(folder), options.bundle, options.minutes), options)
    rate = matmul_rate()
    print(f"{machine()}, {torch.get_num_threads()} threads: matrix products {rate / 1e9:.0f} GF/s")
    if not find_spec("ctranslate2"):
        print("CTranslate2 is not installed and is skipped: pip install ctranslate2")
    with tempfile.TemporaryDirectory() as folder:
        checks = []
        for case, known in cases(options, Path(folder)):
            budget = case.size.seconds[64 if case.batch > 1 else 1]
            checks.append(row(case, known, budget / 4 if options.quick else budget, rate))
    return report("decoding", checks)


if __name__ == "__main__":
    main()
