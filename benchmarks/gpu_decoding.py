"""Decoding on a GPU: tokens/s of the same weights on Regard and HF `generate`, and Regard's answers against a CPU's.

    python benchmarks/gpu_decoding.py              # base size, 30 tokens to 30; 1, 8, 64 and 512 in flight: 2 minutes
    python benchmarks/gpu_decoding.py --profile    # where a step's time goes

A base Transformer with random weights (512 wide, 6 + 6 layers, 8 heads, hidden 2048, 32,000 words), every answer of 30
tokens and an end, which does not count. HF's is MarianMTModel with its cache, in the faster of float32 and bfloat16. In
float32 both sides must say the same. The shipped model `spelling` then answers 5,000 words it has not seen, on the GPU
in float32 and bfloat16 and on the CPU.

The ceilings are Regard's, for a step: the bytes it must read (the decoder's weights once, keys and values of what was
said and read) at the rate of a large copy, and its multiply-adds at the rate of a large matrix product.
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
from regard.search.constraints import NEVER, shortest
from regard.text import END
from regard.train import cmudict as demo

DEVICE = "cuda"
WORDS, LETTERS, VOCABULARY = 5_000, 30, 32_000
BASE = {**PRESETS["transformer"]["base"], "tie_embeddings": "none"}  # tied random tables repeat their first token
SAME = {"position": "sinusoidal", "norm_order": "post", "activation": "relu", "dropout": 0.0}  # Marian's shape
FLIGHTS, BEAMS = (1, 8, 64, 512), (1, 5)
TIMES = 10  # how many times as fast as HF, asked for 64 in flight; in float32 faster is enough
KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Generated(Generate):
    """HF on the GPU, for any beam."""

    def __init__(self, model: RegardTransformer) -> None:
        super().__init__(deepcopy(model), LETTERS, 1)  # it shares its tables with who gave them

    def to(self, kind: torch.dtype) -> "Generated":
        """Another of these, computing so."""
        side = copy(self)
        side.model = deepcopy(self.model).to(DEVICE, kind)
        return side.of(1)

    def of(self, beam: int) -> "Generated":
        """The same, with such a beam."""
        self.options = {**self.options, "num_beams": beam, "length_penalty": 0.0 if beam > 1 else 1.0}
        self.options["logits_processor"] = [self._ending]
        return self

    def given(self, sources: Ids) -> tuple[torch.Tensor, ...]:
        return tuple(side.to(DEVICE) for side in super().given(sources))

    def _ending(self, said: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if said.shape[1] <= LETTERS:
            return scores
        only = torch.full_like(scores, NEVER)
        only[:, END] = scores[:, END]
        return only


class Regard:
    """As the product searches."""

    def __init__(self, model: RegardTransformer, kind: torch.dtype) -> None:
        self.model = inference_model(deepcopy(model).to(DEVICE, kind))

    def given(self, sources: Ids) -> Ids:
        return sources

    def of(self, beam: int) -> "Regard":
        """The same, with such a beam."""
        rules = (shortest(LETTERS),)
        self.search = Greedy(rules) if beam == 1 else Beam(beam, rules=rules)
        return self

    def run(self, given: Ids) -> list[SearchResult]:
        return search_all(self.search, self.model, given, most=LETTERS, device=DEVICE)

    def answers(self, found: list[SearchResult]) -> Ids:
        return [some.hypotheses[0].ids for some in found]


Sides = dict[str, dict[str, Regard | Generated]]  # by who and in what


@dataclass(frozen=True)
class Row:
    """A case: tokens/s of both sides, and the ceilings."""

    flight: int
    beam: int
    kind: str
    ours: float
    theirs: float
    bandwidth: float
    arithmetic: float

    def __str__(self) -> str:
        case = f"{self.flight:>3} × {'greedy' if self.beam == 1 else f'beam {self.beam}'}, {self.kind}"
        limit = min(self.bandwidth, self.arithmetic)
        return (
            f"{case:24} {self.ours:>12,.0f} {self.theirs:>12,.0f} {self.ours / self.theirs:>8.1f} × "
            f"{self.bandwidth:>14,.0f} {self.arithmetic:>14,.0f} {self.ours / limit:>8.1%}"
        )


def ceilings(flight: int, beam: int, kind: str, rates: dict[str, float], moved: float) -> tuple[float, float]:
    """Tokens/s if a step only read, and if it only multiplied. What is encoded is not counted: it comes once."""
    width, hidden = BASE["width"], BASE["ffn_width"]
    depth, size = BASE["decoder_layers"], KINDS[kind].itemsize
    weights = depth * (6 * width**2 + 2 * width * hidden) + width * VOCABULARY
    steps, rows = LETTERS + 1, flight * beam
    held = 2 * width * depth * (rows * (steps + 1) / 2 + flight * (LETTERS + 1))  # on the average
    seconds = size * (weights + held) / moved, 2 * rows * (weights + held / rows) / rates[kind]
    return tuple(flight * LETTERS / (steps * one) for one in seconds)  # type: ignore[return-value]


def copying() -> float:
    """Bytes a second of a large copy, read and written."""
    table = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    other = torch.empty_like(table)
    return 2 * len(table) / median(lambda: other.copy_(table), repeats=7)


def sources(count: int) -> Ids:
    """Random ones."""
    chance = torch.Generator().manual_seed(1)
    return torch.randint(END + 1, VOCABULARY, (count, LETTERS), generator=chance).tolist()


def speed(side: Regard | Generated, asked: Ids, *, repeats: int) -> float:
    """Tokens/s of one call, in the middle of some."""
    given = side.given(asked)
    return len(asked) * LETTERS / median(lambda: side.run(given), repeats=repeats, warmup=1)


def agree(sides: Sides, beam: int) -> None:
    """Both sides must say the same in float32, but for what rounding decides."""
    asked = sources(64)
    both = [sides[who]["float32"].of(beam) for who in ("regard", "HF")]
    said = [side.answers(side.run(side.given(asked))) for side in both]
    assert {len(ids) for some in said for ids in some} == {LETTERS}, "lengths differ"
    equal = statistics.mean(a == b for a, b in zip(*said, strict=True))
    print(f"beam {beam}: HF says the same for {equal:.0%} of 64 sources in float32", flush=True)
    if equal < 0.9:
        raise SystemExit("the two sides say different things with the same weights; nothing was timed")


def rows(sides: Sides, quick: bool) -> list[Row]:
    """All cases."""
    rates, moved = {name: matmul_rate(kind) for name, kind in KINDS.items()}, copying()
    shown = ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in rates.items())
    head = f"{'regard':>12} {'HF generate':>12} {'':>10} {'bandwidth':>14} {'arithmetic':>14} {'of limit':>8}"
    print(f"copies {moved / 1e12:.2f} TB/s, {shown}\n\n{'tokens/s':24} {head}", flush=True)
    found = []
    for beam in BEAMS:
        for flight in (64,) if quick else FLIGHTS:
            asked = sources(flight)
            best = max(speed(side.of(beam), asked, repeats=3) for side in sides["HF"].values())
            for name, side in sides["regard"].items():
                mine = speed(side.of(beam), asked, repeats=7)
                found.append(Row(flight, beam, name, mine, best, *ceilings(flight, beam, name, rates, moved)))
                print(found[-1], flush=True)
    return found


def words() -> list[str]:
    """What the shipped model has not seen."""
    return list(dict.fromkeys(word for word, _ in demo.dictionary() if demo.part(word) == "test"))[:WORDS]


def different() -> dict[str, int]:
    """How many words of the shipped model come out otherwise on the GPU than on the CPU, by search and precision."""
    asked, found = words(), {}
    torch.set_num_threads(16)
    cpu = regard.load("spelling", device="cpu")
    gpus = {name: regard.load("spelling", device=DEVICE, precision=name) for name in KINDS}
    for beam in BEAMS:
        right = [answer.text for answer in cpu.many(asked, cpu.search(beam=beam))]
        for name, gpu in gpus.items():
            said = [answer.text for answer in gpu.many(asked, gpu.search(beam=beam))]
            found[f"beam {beam}, {name}"] = sum(a != b for a, b in zip(said, right, strict=True))
            print(f"beam {beam}, {name}: {found[f'beam {beam}, {name}']} of {len(asked):,} words differ", flush=True)
    return found


def profile(model: RegardTransformer) -> None:
    """The kernels of 31 steps, 64 in flight."""
    asked = sources(64)
    for beam in BEAMS:
        for name, kind in KINDS.items():
            side = Regard(model, kind).of(beam)
            side.run(asked)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                side.run(asked)
            print(f"\nbeam {beam}, {name}: 64 sources, {64e3 * LETTERS / speed(side, asked, repeats=5):.2f} ms")
            print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=70))


def checks(found: list[Row], differ: dict[str, int]) -> list[Check]:
    """What was asked: ten times HF's speed, 64 in flight; the CPU's words."""
    made = []
    for row in found:
        case = f"{row.flight} × {'greedy' if row.beam == 1 else f'beam {row.beam}'}, {row.kind}"
        ratio, limit = row.ours / row.theirs, min(row.bandwidth, row.arithmetic)
        made.append(Check(f"{case}: tokens/s", row.ours, limit, None, True))
        asked = TIMES if row.flight == 64 and row.kind == "bfloat16" else 1.0
        made.append(Check(f"{case}: over HF", ratio, limit / row.theirs, asked, ratio >= asked))
    for name, count in differ.items():
        asked = 0 if "float32" in name else None  # half precision is counted
        made.append(Check(f"words unlike the CPU's, {name}", count, 0, asked, asked is None or count == 0))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="store_true", help="where a step's time goes")
    parser.add_argument("--quick", action="store_true", help="64 in flight only")
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
        agree(sides, beam)
    found = rows(sides, options.quick)
    report("gpu_decoding", checks(found, different()))


if __name__ == "__main__":
    main()
