"""Decoding on a GPU: tokens/s of Regard and HF `generate`, and outputs compared with a CPU.

    python benchmarks/gpu_decoding.py  # 1, 8, 64 and 512 concurrent sentences: 2 minutes
    python benchmarks/gpu_decoding.py --profile    # profile of a step
 A base Transformer with random weights (512 wide, 6 + 6 layers, 8 heads, ffn_width 2048,
vocabulary 32,000), from 30 tokens to 30 and an end token, which does not count. HF is
MarianMTModel with its cache, in the faster of float32 and bfloat16. In float32 both must give the
same outputs. The included model `spelling` then decodes 5,000 unseen words, on the GPU in float32
and bfloat16 and on the CPU.

The ceilings are Regard's, for a step: the bytes it must read (decoder weights and KV cache) at the
rate of a large copy, and its multiply-adds at the rate of a large matrix product.
"""

import argparse
import statistics
from copy import copy, deepcopy
from dataclasses import dataclass

import torch
from decoding_peers import Generate, Ids, random_model
from harness import Check, matmul_rate, median, report

import regard
from regard.config import PRESETS, TransformerSettings
from regard.inference import inference_model, search_all
from regard.models import Transformer as RegardTransformer
from regard.search import Beam, Greedy, SearchResult
from regard.search.constraints import NEG_INF, min_length
from regard.text import END
from regard.training import cmudict as demo

DEVICE = "cuda"
WORDS, LETTERS, VOCABULARY = 5_000, 30, 32_000
BASE = {
    **PRESETS["transformer"]["base"],
    "tie_embeddings": "none",
}  # tied random embeddings repeat the first token
SAME = {
    "position": "sinusoidal",
    "norm_order": "post",
    "activation": "relu",
    "dropout": 0.0,
}  # as in Marian
CONCURRENT, BEAMS = (1, 8, 64, 512), (1, 5)
TIMES = 10  # target over HF for 64 sentences in bfloat16; in float32, 1
KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Generated(Generate):
    """HF on the GPU, for any beam."""

    def __init__(self, model: RegardTransformer) -> None:
        super().__init__(
            deepcopy(model), LETTERS, 1
        )  # it shares its embeddings with the given model

    def to(self, kind: torch.dtype) -> "Generated":
        """A copy in another precision."""
        side = copy(self)
        side.model = deepcopy(self.model).to(DEVICE, kind)
        return side.with_beam(1)

    def with_beam(self, beam: int) -> "Generated":
        """Set the beam size."""
        self.options = {
            **self.options,
            "num_beams": beam,
            "length_penalty": 0.0 if beam > 1 else 1.0,
        }
        self.options["logits_processor"] = [self._ending]
        return self

    def given(self, sources: Ids) -> tuple[torch.Tensor, ...]:
        return tuple(side.to(DEVICE) for side in super().given(sources))

    def _ending(self, outputs: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if outputs.shape[1] <= LETTERS:
            return scores
        only = torch.full_like(scores, NEG_INF)
        only[:, END] = scores[:, END]
        return only


class Regard:
    """Regard, as in `regard predict`."""

    def __init__(self, model: RegardTransformer, kind: torch.dtype) -> None:
        self.model = inference_model(deepcopy(model).to(DEVICE, kind))

    def given(self, sources: Ids) -> Ids:
        return sources

    def with_beam(self, beam: int) -> "Regard":
        """Set the beam size."""
        constraints = (min_length(LETTERS),)
        self.search = Greedy(constraints) if beam == 1 else Beam(beam, constraints=constraints)
        return self

    def run(self, given: Ids) -> list[SearchResult]:
        return search_all(self.search, self.model, given, max_length=LETTERS, device=DEVICE)

    def answers(self, found: list[SearchResult]) -> Ids:
        return [some.hypotheses[0].ids for some in found]


Sides = dict[str, dict[str, Regard | Generated]]  # by system and precision


@dataclass(frozen=True)
class Row:
    """One row of the table: tokens/s of both sides, and the ceilings."""

    concurrent: int
    beam: int
    kind: str
    ours: float
    theirs: float
    bandwidth: float
    arithmetic: float

    def __str__(self) -> str:
        search = "greedy" if self.beam == 1 else f"beam {self.beam}"
        case = f"{self.concurrent:>3} × {search}, {self.kind}"
        limit = min(self.bandwidth, self.arithmetic)
        return (
            f"{case:24} {self.ours:>12,.0f} {self.theirs:>12,.0f} "
            f"{self.ours / self.theirs:>8.1f} × "
            f"{self.bandwidth:>14,.0f} {self.arithmetic:>14,.0f} {self.ours / limit:>8.1%}"
        )


def ceilings(
    concurrent: int, beam: int, kind: str, rates: dict[str, float], moved: float
) -> tuple[float, float]:
    """Tokens/s if a step only read memory, and if it only multiplied; the encoder does not
    count."""
    width, hidden = BASE["width"], BASE["ffn_width"]
    depth, size = BASE["decoder_layers"], KINDS[kind].itemsize
    weights = depth * (6 * width**2 + 2 * width * hidden) + width * VOCABULARY
    steps, rows = LETTERS + 1, concurrent * beam
    cache = 2 * width * depth * (rows * (steps + 1) / 2 + concurrent * (LETTERS + 1))  # on average
    seconds = size * (weights + cache) / moved, 2 * rows * (weights + cache / rows) / rates[kind]
    memory, arithmetic = (concurrent * LETTERS / (steps * one) for one in seconds)
    return memory, arithmetic


def copy_rate() -> float:
    """Bytes/s of a large copy, read and written."""
    table = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    other = torch.empty_like(table)
    return 2 * len(table) / median(lambda: other.copy_(table), repeats=7)


def sources(count: int) -> Ids:
    """Random sources."""
    chance = torch.Generator().manual_seed(1)
    return torch.randint(END + 1, VOCABULARY, (count, LETTERS), generator=chance).tolist()


def speed(side: Regard | Generated, batch: Ids, *, repeats: int) -> float:
    """Median tokens/s of a call."""
    given = side.given(batch)
    return len(batch) * LETTERS / median(lambda: side.run(given), repeats=repeats, warmup=1)


def check_outputs(sides: Sides, beam: int) -> None:
    """Both sides must give the same outputs in float32, except for rounding."""
    batch = sources(64)
    both = [sides[who]["float32"].with_beam(beam) for who in ("regard", "HF")]
    outputs = [side.answers(side.run(side.given(batch))) for side in both]
    assert {len(ids) for some in outputs for ids in some} == {LETTERS}, "lengths differ"
    equal = statistics.mean(a == b for a, b in zip(*outputs, strict=True))
    print(
        f"beam {beam}: HF gives the same output for {equal:.0%} of 64 sources in float32",
        flush=True,
    )
    if equal < 0.9:
        raise SystemExit("outputs differ with the same weights; nothing was timed")


def rows(sides: Sides, quick: bool) -> list[Row]:
    """Measure and print all rows."""
    rates, moved = {name: matmul_rate(kind) for name, kind in KINDS.items()}, copy_rate()
    shown = ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in rates.items())
    head = f"{'regard':>12} {'HF generate':>12} {'':>10} {'bandwidth':>14} {'arithmetic':>14} "
    head += f"{'of limit':>8}"
    print(f"copies {moved / 1e12:.2f} TB/s, {shown}\n\n{'tokens/s':24} {head}", flush=True)
    found = []
    for beam in BEAMS:
        for concurrent in (64,) if quick else CONCURRENT:
            batch = sources(concurrent)
            best = max(
                speed(side.with_beam(beam), batch, repeats=3) for side in sides["HF"].values()
            )
            for name, side in sides["regard"].items():
                mine = speed(side.with_beam(beam), batch, repeats=7)
                found.append(
                    Row(
                        concurrent,
                        beam,
                        name,
                        mine,
                        best,
                        *ceilings(concurrent, beam, name, rates, moved),
                    )
                )
                print(found[-1], flush=True)
    return found


def words() -> list[str]:
    """Words that the included model has not seen."""
    return list(dict.fromkeys(word for word, _ in demo.dictionary() if demo.part(word) == "test"))[
        :WORDS
    ]


def count_differences() -> dict[str, int]:
    """The number of words whose output differs between GPU and CPU, by search and precision."""
    batch, found = words(), {}
    torch.set_num_threads(16)
    cpu = regard.load("spelling", device="cpu")
    gpus = {name: regard.load("spelling", device=DEVICE, precision=name) for name in KINDS}
    for beam in BEAMS:
        right = [answer.text for answer in cpu.many(batch, cpu.search(beam=beam))]
        for name, gpu in gpus.items():
            outputs = [answer.text for answer in gpu.many(batch, gpu.search(beam=beam))]
            found[f"beam {beam}, {name}"] = sum(a != b for a, b in zip(outputs, right, strict=True))
            print(
                f"beam {beam}, {name}: {found[f'beam {beam}, {name}']} of {len(batch):,} differ",
                flush=True,
            )
    return found


def profile(model: RegardTransformer) -> None:
    """Print the kernels of 31 steps with 64 sentences."""
    batch = sources(64)
    for beam in BEAMS:
        for name, kind in KINDS.items():
            side = Regard(model, kind).with_beam(beam)
            side.run(batch)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                side.run(batch)
            milliseconds = 64e3 * LETTERS / speed(side, batch, repeats=5)
            print(f"\nbeam {beam}, {name}: 64 sources, {milliseconds:.2f} ms")
            print(
                seen.key_averages().table(
                    sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=70
                )
            )


def checks(found: list[Row], differ: dict[str, int]) -> list[Check]:
    """The checks: speed over HF, and outputs equal to the CPU's."""
    made = []
    for row in found:
        case = f"{row.concurrent} × {'greedy' if row.beam == 1 else f'beam {row.beam}'}, {row.kind}"
        ratio, limit = row.ours / row.theirs, min(row.bandwidth, row.arithmetic)
        made.append(Check(f"{case}: tokens/s", row.ours, limit, None, True))
        target = TIMES if row.concurrent == 64 and row.kind == "bfloat16" else 1.0
        made.append(Check(f"{case}: over HF", ratio, limit / row.theirs, target, ratio >= target))
    for name, count in differ.items():
        target = 0 if "float32" in name else None  # half precision is only counted
        made.append(
            Check(f"words unlike the CPU's, {name}", count, 0, target, target is None or count == 0)
        )
    return made


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", action="store_true", help="profile a step")
    parser.add_argument("--quick", action="store_true", help="64 sentences only")
    options = parser.parse_args()
    model = random_model(TransformerSettings(**BASE, **SAME), VOCABULARY, VOCABULARY)
    if options.profile:
        profile(model)
        return
    peer = Generated(model)
    sides: Sides = {
        "regard": {name: Regard(model, kind) for name, kind in KINDS.items()},
        "HF": {name: peer.to(kind) for name, kind in KINDS.items()},
    }
    for beam in BEAMS:
        check_outputs(sides, beam)
    found = rows(sides, options.quick)
    report("gpu_decoding", checks(found, count_differences()))


if __name__ == "__main__":
    main()
