"""Decoding speed: tokens/s of the same weights on Regard, HF `generate` and CTranslate2, and of a plain loop.

    python benchmarks/decoding.py                     # two sizes, one source and 64, greedy and beam 4: < 9 minutes
    python benchmarks/decoding.py --only small --quick
    python benchmarks/decoding.py --profile           # where Regard's time goes

The small model is one of the default task's size, trained on it for a minute first (or --bundle), and answers words it
has not seen. The base model has random weights, and lengths are forced. Ends do not count as tokens. All sides take
turns, and ratios are taken turn by turn. A case has so many seconds: where one round of turns fills them (64 sources,
beam 4, base), that round is all there is, without a warm-up of its own, and the column `turns` says 0.

The ceilings are for float32: what int8 reads is a quarter. Arithmetic: every multiply-add at the machine's rate in a
large matrix product. Bandwidth: every step reads the decoder's weights and the keys and values so far, at the rate at
which so many bytes can be summed; what fits into caches is read faster than memory.
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
from decoding_peers import Contender, CTranslate2, Generate, Ids, Loop, Regard, random_model, save
from harness import Check, machine, matmul_rate, median, report

from regard import bundle
from regard.config import PRESETS, TrainSettings, TransformerSettings
from regard.models import Transformer as RegardTransformer
from regard.text import END, Corpus
from regard.train import cmudict as demo
from regard.train.run import Job, run
from regard.train.view import Plain

TURN, MOST = 0.25, 9  # seconds of a contender's turn, unless one call takes longer; rounds of turns
HF, LOOP = "HF generate", "nn.Transformer"
NAMES = ("regard", HF, LOOP, "CT2 float32", "CT2 int8")
EXACT = (HF, "CT2 float32")  # must say what Regard says
BASE = {**PRESETS["transformer"]["base"], "tie_embeddings": "none"}
# Marian's shape. Tables are not tied: with random weights a tied one repeats its first token, whatever it reads.
SAME = {"position": "sinusoidal", "norm_order": "post", "activation": "relu", "dropout": 0.0}


@dataclass(frozen=True)
class Size:
    """A model and its task: about `letters` tokens in and out, an end after each; `wanted` times as fast as HF."""

    name: str
    model: RegardTransformer
    sources: Ids
    letters: int
    forced: int | None  # the tokens of every answer; None: the model ends them itself
    seconds: dict[int, float]  # for a case, by its batch
    wanted: float

    @property
    def settings(self) -> TransformerSettings:
        return self.model.settings


def small(folder: Path, given: Path | None, minutes: float) -> Size:
    """The default task, learned for a while, and words of its test part."""
    if given is None:
        parts = demo.unpack(folder)
        train = TrainSettings(minutes=minutes, evaluations=1)
        job = Job(Corpus(parts["train"]), folder / "run", Corpus(parts["dev"]), size="tiny", model=SAME, train=train)
        with open(os.devnull, "w") as nowhere:
            run(job, Plain(nowhere))
        given = folder / "run" / "bundle"
    held = bundle.load(given)
    words = dict.fromkeys(word for word, _ in demo.dictionary() if demo.part(word) == "test")
    sources = [held.source.encode(word) for word in random.Random(1).sample(list(words), 64)]
    letters = round(statistics.mean(map(len, sources)))
    return Size("small", held.model, sources, letters, None, {1: 12.0, 64: 12.0}, 4.0)


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
        return f"{self.size.name}, {self.batch:>2} × {'greedy' if self.beam == 1 else f'beam {self.beam}'}"


def contenders(size: Size, beam: int, folder: Path, threads: int) -> dict[str, Contender]:
    """All who can, by name; the weights are those of one seed."""
    model, forced = size.model, size.forced
    found: dict[str, Contender] = {"regard": Regard(model, forced, beam), HF: Generate(model, forced, beam)}
    if beam == 1:
        found[LOOP] = Loop(size.settings, *(len(side.table) for side in (model.source, model.target)), size.letters)
    if find_spec("ctranslate2"):
        if not (folder / size.name).exists():
            save(model, folder / size.name)
        for kind in ("float32", "int8"):
            found[f"CT2 {kind}"] = CTranslate2(folder / size.name, forced, beam, compute=kind, threads=threads)
    return found


def agree(known: dict[str, Contender], size: Size, beam: int, count: int) -> None:
    """Print who gives Regard's answers; speeds of models that differ would mean nothing. Under beams CTranslate2 keeps
    other rules (see decoding_peers), so only greedy answers must be equal."""
    sources = size.sources[:count]
    found = {name: some.run(some.given(sources)) for name, some in known.items() if name != LOOP}
    said = {name: known[name].answers(some) for name, some in found.items()}
    lengths = {len(ids) for answers in said.values() for ids in answers}
    assert size.forced is None or lengths == {size.forced}, "lengths differ"
    equal = {name: statistics.mean(a == b for a, b in zip(said["regard"], said[name], strict=True)) for name in said}
    shown = ", ".join(f"{name} {share:.0%}" for name, share in equal.items() if name != "regard")
    alone = statistics.mean(some.is_close for some in found["regard"])
    kind = "greedy" if beam == 1 else f"beam {beam}"
    print(f"{size.name}, {kind}, {count} sources: as Regard answers {shown}; Regard decides {alone:.1%} alone")
    wrong = [name for name in EXACT if equal.get(name, 1) < 0.9]
    if beam == 1 and wrong:
        raise SystemExit(f"{', '.join(wrong)}: other answers than Regard's with the same weights; nothing was timed")


def speeds(known: dict[str, Contender], case: Case, batch_tokens: float) -> tuple[dict[str, list[float]], int]:
    """Tokens/s turn by turn, and the rounds of turns after the first, which only counts where it is the only one."""
    sources = case.size.sources
    starts = range(0, max(1, len(sources) - case.batch + 1), case.batch)
    given = {name: [known[name].given(sources[at : at + case.batch]) for at in starts] for name in known}

    def turn(name: str, calls: int) -> float:
        work = given[name] * (calls // len(given[name]) + 1)
        return median(lambda: [known[name].run(some) for some in work[:calls]], repeats=1, warmup=0) / calls

    first = {name: turn(name, 1) for name in known}
    going = [
        name for name in known if name != LOOP or first[name] < batch_tokens / 6
    ]  # a loop that takes so long goes once
    calls = {name: max(1, round(TURN / first[name])) for name in going}
    rounds = min(MOST, int((batch_tokens - sum(first.values())) / sum(first[name] * calls[name] for name in going)))
    found = {name: [] if name in going and rounds > 0 else [seconds] for name, seconds in first.items()}
    for place in range(rounds):
        shift = place % len(going)
        for name in going[shift:] + going[:shift]:
            found[name].append(turn(name, calls[name]))
    said = known["regard"].answers(known["regard"].run(known["regard"].given(sources)))
    tokens = case.batch * statistics.mean(map(len, said))
    return {name: [tokens / seconds for seconds in times] for name, times in found.items()}, max(0, rounds)


def ceilings(case: Case, rate: float) -> tuple[float, float]:
    """Tokens/s if nothing but matrix products took time, and if nothing but reading did. The first step of a beam
    needs one row for each source, and beams share what was read of it."""
    settings, batch = case.size.settings, case.batch
    time_ = case.size.letters + 1  # of source and answer, ends included
    width, decoder_layers = settings.width, settings.decoder_layers
    feed = 2 * width * settings.ffn_width
    encoder = settings.encoder_layers * (4 * width**2 + feed)
    remember = decoder * 2 * width**2
    step = decoder * (6 * width**2 + feed) + width * len(case.size.model.target.table)
    rows = [batch * (case.beam if place else 1) for place in range(time_)]
    past = sum(row * (place + 1) for place, row in enumerate(rows))
    maps = 2 * width * (settings.encoder_layers * batch * time_**2 + decoder * (past + sum(rows) * time_))
    work = batch * time_ * (encoder + remember) + sum(rows) * step + maps
    held = 2 * width * decoder * (past + time_ * batch * time_)
    read = 4 * (encoder + remember + time_ * step + held)
    tokens = batch * case.size.letters
    return tokens * rate / (2 * work), tokens * reading(read / time_) / read


def reading(size: float) -> float:
    """Bytes a second, for sets of so many bytes read again and again. Of less than 4 MB a call's cost would show."""
    table = torch.rand(int(max(4e6, size)) // 4)
    return 4 * len(table) / median(table.sum, repeats=31)


def row(case: Case, known: dict[str, Contender], batch_tokens: float, rate: float) -> Check:
    """Measure one case and print it."""
    found, rounds = speeds(known, case, batch_tokens)
    ratio = statistics.median(a / b for a, b in zip(found["regard"], found[HF], strict=True))
    middle = {name: statistics.median(found[name]) for name in found}
    arithmetic, bandwidth = ceilings(case, rate)
    cells = " ".join(f"{middle[name]:>14,.0f}" if name in middle else f"{'–':>14}" for name in NAMES)
    limits = f"{arithmetic:>11,.0f} {bandwidth:>10,.0f} {middle['regard'] / min(arithmetic, bandwidth):>10.0%}"
    print(f"{case!s:20} {cells} {ratio:>8.2f} × {limits} {rounds:>6}", flush=True)
    wanted = case.size.wanted
    return Check(f"{case}: over HF", ratio, min(arithmetic, bandwidth) / middle[HF], wanted, ratio >= wanted)


def cases(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Case, dict[str, Contender]]]:
    """All rows, with who takes part. What must agree is looked at before anything is timed."""
    for size in sizes(options, folder):
        sides = {beam: contenders(size, beam, folder, options.threads) for beam in (1, 4)}
        print()
        for beam, known in sides.items():
            agree(known, size, beam, 4 if options.quick else 64 if size.name == "small" else 16)
        limits = f"{'arithmetic':>11} {'bandwidth':>10} {'of ceiling':>10}"
        print(f"\n{'tokens/s':20} {' '.join(f'{name:>14}' for name in NAMES)} {'regard/HF':>10} {limits} {'turns':>6}")
        for batch in (1, 8 if options.quick else 64):
            for beam, known in sides.items():
                yield Case(size, batch, beam), known


def sizes(options: argparse.Namespace, folder: Path) -> Iterator[Size]:
    """Those asked for."""
    if options.only != "base":
        yield small(folder, options.bundle, options.minutes)
    if options.only != "small":
        yield base()


def profile(size: Size, options: argparse.Namespace) -> None:
    """Where Regard's time goes in 64 small answers. One thread, so that times add up."""
    torch.set_num_threads(1)
    count = 5 if options.quick else 40
    for beam in (1, 4):
        search = Regard(size.model, size.forced, beam).run
        plain = median(lambda search=search: search(size.sources), repeats=count)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            whole = median(lambda search=search: [search(size.sources) for _ in range(count)], repeats=1, warmup=0)
            whole /= count
        averages = seen.key_averages()
        inside = sum(some.self_cpu_time_total for some in averages) / 1e6 / count
        print(
            f"\n{Case(size, 64, beam)}, one thread: {plain * 1e3:.1f} ms; under the profiler "
            f"{whole * 1e3:.1f} ms, of it {inside * 1e3:.1f} ms in {sum(some.count for some in averages) // count:,} "
            f"operations and {1 - inside / whole:.0%} in Python outside of them"
        )
        print(averages.table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=50))


def main() -> None:
    """Everything."""
    parser = argparse.ArgumentParser(description="tokens/s in decoding, beside three peers")
    parser.add_argument("--only", choices=("small", "base"), help="one size only")
    parser.add_argument("--bundle", type=Path, help="a small model of the default task and of Marian's shape")
    parser.add_argument("--minutes", type=float, default=1.0, help="to train one, when none is given")
    parser.add_argument("--quick", action="store_true", help="8 sources for 64 and a quarter of the time, as a trial")
    parser.add_argument("--threads", type=int, default=2, help="cores to use")
    parser.add_argument("--profile", action="store_true", help="show where Regard's time goes, and stop")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.profile:
        with tempfile.TemporaryDirectory() as folder:
            return profile(small(Path(folder), options.bundle, options.minutes), options)
    rate = matmul_rate()
    print(f"{machine()}, {torch.get_num_threads()} threads: matrix products {rate / 1e9:.0f} GF/s")
    if not find_spec("ctranslate2"):
        print("CTranslate2 is not installed and left out: pip install ctranslate2")
    with tempfile.TemporaryDirectory() as folder:
        checks = []
        for case, known in cases(options, Path(folder)):
            batch_tokens = case.size.seconds[64 if case.batch > 1 else 1]
            checks.append(row(case, known, batch_tokens / 4 if options.quick else batch_tokens, rate))
    return report("decoding", checks)


if __name__ == "__main__":
    main()
