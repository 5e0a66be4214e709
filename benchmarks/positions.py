"""Position encodings compared: the same recipe, steps and seeds; only the encoding changes.

    python benchmarks/positions.py --data DIR --parallel 8 --keep   # all encodings and sets
    python benchmarks/positions.py --data DIR --out RUNS --keep     # can be resumed
    python benchmarks/positions.py --join A.json B.json --keep      # merges separate runs
    python benchmarks/positions.py --draw                           # docs/pictures/positions.png

Captions and CMUdict are tested on the lengths of the training data. Two sets test longer ones:
CMUdict trained on words of up to 8 letters, and SCAN trained on up to 22 or 26 actions. Learned
positions have no information on positions beyond the training texts; relative ones have seen every
short distance.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Check, command, machine, report
from quality_runs import Result, Trial, outcomes
from quality_scores import CONVENTIONS
from quality_sets import READERS, write

from regard.positions import POSITIONS

# Steps of each set: fewer than in the recipes, because only encodings are compared.
SCAN = ("scan-length", "scan-length-26", "scan-around-right")
STEPS = {"multi30k-en-de-tok": 1_500, "cmudict": 1_500, "cmudict-short": 1_000} | dict.fromkeys(
    SCAN, 1_500
)
COMMON = ("train.rdrop=0", "train.bpe_dropout=0", "train.evaluations=1")
SMALLER = ("model.width=256", "model.heads=4", "model.ffn_width=768", "train.learning_rate=0.003")
SMALLEST = (
    "model.width=128",
    "model.heads=8",
    "model.encoder_layers=3",
    "model.decoder_layers=3",
    "model.ffn_width=256",
)
AUTO_SCHEDULE = (
    "train.optimizer=muon",
    "train.schedule=linear",
    "train.warmup=0.03",
    "train.weight_decay=0.01",
    "train.clip_norm=1",
)
AVERAGED = (
    "train.weight_average=ema",
    "train.average_count=10",
    "train.batch_tokens=4096",
    "train.learning_rate=0.004",
    "train.label_smoothing=0",
)
SCAN_OVERRIDES = (
    *SMALLEST,
    "model.activation=relu",
    "model.norm_order=pre",
    "model.dropout=0.1",
    *AUTO_SCHEDULE,
    *AVERAGED,
)
OVERRIDES = {
    "multi30k-en-de-tok": ("model.dropout=0.3",),
    "cmudict": SMALLER,
    "cmudict-short": SMALLER,
} | dict.fromkeys(SCAN, SCAN_OVERRIDES)
LONGER = (
    "scan-length",
    "scan-length-26",
)  # where relative positions should extrapolate and absolute ones not
RELATIVE = ("rotary", "alibi", "distance", "t5", "shaw")
KEPT = Path(__file__).parent / "results" / "positions.json"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "positions.png"


def trials(options: argparse.Namespace, folder: Path) -> Iterator[Trial]:
    """Every encoding, set and seed; seeds outermost, so that an early stop has compared all."""
    for name in options.sets:
        write(READERS[name](options.data), folder / name / "parts")
    for seed in options.seeds:
        for name in options.sets:
            steps = max(1, round(options.share * STEPS[name]))
            for position in options.only or POSITIONS:
                out = folder / name / f"{position}-{seed}"
                overrides = (
                    f"model.position={position}",
                    *COMMON,
                    *OVERRIDES.get(name, ()),
                    *options.set,
                )
                given = tuple(command("positions", options))
                yield Trial(
                    name,
                    "recipe",
                    seed,
                    folder / name / "parts",
                    out,
                    overrides,
                    run_length={"steps": steps},
                    command=given,
                )


def group(results: Sequence[Result]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """By set and figure, the values of each encoding over seeds; also figures by length."""
    grouped: dict[str, dict[str, dict[str, list[float]]]] = {}
    for result in results:
        if "error" in result:
            continue
        position = result["overrides"][0].partition("=")[2]
        figures = dict(result["figures"])
        for name, groups in result["details"].items():
            if name.endswith(" groups") and not name.startswith("dev "):
                figures |= {f"{length} symbols": value for length, value in groups.items()}
        for figure, value in figures.items():
            own = grouped.setdefault(result["set"], {}).setdefault(figure, {})
            own.setdefault(position, []).append(value)
    return grouped


def table(name: str, figures: dict[str, dict[str, list[float]]]) -> str:
    """One row per encoding: mean and standard deviation of each figure of the set."""
    metric = CONVENTIONS[name].chosen
    shown = [figure for figure in figures if figure.split()[-1] == metric]
    positions = [name for name in POSITIONS if any(name in figures[figure] for figure in shown)]
    lines = [[f"{name}: {metric}", *(figure.rsplit(" ", 1)[0] for figure in shown)]]
    lines += [
        [position, *(_cell(figures[figure].get(position, [])) for figure in shown)]
        for position in positions
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else ""
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def checks(results: Sequence[Result]) -> list[Check]:
    """All trainings completed; on longer outputs, the gain of the best relative encoding."""
    good = [result for result in results if "error" not in result]
    made = [
        Check(
            "trainings completed", len(good), len(results), len(results), len(good) == len(results)
        )
    ]
    for name, figures in group(results).items():
        means = {
            position: statistics.fmean(values)
            for position, values in figures.get("test exact", {}).items()
        }
        near = {position: means[position] for position in RELATIVE if position in means}
        if name in LONGER and near and "sinusoidal" in means:
            best = max(near, key=near.__getitem__)
            gain = near[best] - means["sinusoidal"]
            made.append(Check(f"{name}, exact: {best} over sinusoidal", gain, 100.0, 0.0, gain > 0))
    return made


def draw(kept: dict[str, Any], path: Path) -> None:
    """Draw lines by length for the sets that test longer outputs, points with spread for captions.
    A model without positions is drawn for SCAN only: elsewhere it would compress the scale."""
    from regard.plots.figures import blank, place, trim
    from regard.plots.palette import INK, head_colour

    both = group(kept["results"])
    figure, marks = blank(), "os^vDPX*"
    panels = [
        (
            "scan-length-26",
            " symbols",
            "actions in the output (26 at most in training)",
            "exact match, %",
        ),
        ("cmudict-short", " wer", "letters (8 at most in training)", "word error rate, %"),
        ("multi30k-en-de-tok", " bleu", "test set", "BLEU"),
    ]
    for column, (name, ending, across, up) in enumerate(
        panel for panel in panels if panel[0] in both
    ):
        axes = place(figure, 4.6 * column, 0, 3.9, 3.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlabel=across, ylabel=up, title=name)
        own = {key: values for key, values in both.get(name, {}).items() if key.endswith(ending)}
        own = {
            key.removesuffix(ending): values
            for key, values in own.items()
            if not key.startswith("dev ")
        }
        names = sorted(
            own, key=lambda key: (not key.isdecimal(), int(key) if key.isdecimal() else 0)
        )
        for i, position in enumerate(POSITIONS):
            values = [own[key].get(position, []) for key in names]
            if all(values) and (position != "none" or ending == " symbols"):
                means = [statistics.fmean(one) for one in values]
                errors = [statistics.stdev(one) if len(one) > 1 else 0.0 for one in values]
                style: dict[str, Any] = {
                    "color": head_colour(i),
                    "marker": marks[i],
                    "markersize": 5,
                    "capsize": 2,
                }
                line, aside = ("none", 0.07 * (i - 4)) if ending == " bleu" else ("-", 0.0)
                places = [at + aside for at in range(len(names))]
                axes.errorbar(places, means, errors, linestyle=line, label=position, **style)
        axes.set_xticks(range(len(names)), names, color=INK)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.axes[-1].legend(*handles, loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    trim(figure).savefig(path)


def join(paths: Sequence[Path]) -> list[Result]:
    """All results; of two for the same set, encoding and seed the later counts."""
    every = [result for path in paths for result in json.loads(path.read_text())["results"]]
    return list({(one["set"], one["overrides"][0], one["seed"]): one for one in every}.values())


def machine_of(options: argparse.Namespace) -> str:
    """This machine, or that of the joined results."""
    return json.loads(options.join[0].read_text())["machine"] if options.join else machine()


def keep(path: Path, options: argparse.Namespace, results: Sequence[Result]) -> None:
    """Write all results so far as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    thin = [
        {key: value for key, value in one.items() if key not in ("decisions", "settings")}
        for one in results
    ]
    facts = {
        "seeds": sorted({one["seed"] for one in results}),
        "steps": STEPS,
        "share": options.share,
        "set": options.set,
    }
    path.write_text(
        json.dumps(
            {"machine": machine_of(options), **facts, "results": thin}, indent=1, ensure_ascii=False
        )
        + "\n"
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=STEPS,
        default=list(STEPS),
        metavar="NAME",
        help=", ".join(STEPS),
    )
    parser.add_argument(
        "--only", nargs="+", choices=POSITIONS, metavar="POSITION", help=", ".join(POSITIONS)
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the usual number of steps"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="GROUP.NAME=VALUE",
        help="override all recipes",
    )
    parser.add_argument("--parallel", type=int, default=1, help="number of parallel trainings")
    parser.add_argument(
        "--out", type=Path, help="folder of the runs, to resume them (default: temporary)"
    )
    parser.add_argument(
        "--keep", type=Path, nargs="?", const=KEPT, help="write the results (results/)"
    )
    parser.add_argument(
        "--join", type=Path, nargs="+", default=[], metavar="FILE", help="stored results to merge"
    )
    parser.add_argument(
        "--draw", type=Path, nargs="?", const=PICTURE, help="draw the stored results"
    )
    options = parser.parse_args()
    if not (options.data or options.draw or options.join):
        parser.error("--data is missing: the folder with the data sets")
    return options


def train(options: argparse.Namespace) -> list[Result]:
    """All results; each is printed and stored as it is ready."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as temporary:
        queue = list(trials(options, options.out or Path(temporary)))
        print(f"{machine()}: {len(queue)} trainings", flush=True)
        for result in outcomes(queue, options.parallel):
            results.append(result)
            chosen = CONVENTIONS[result["set"]].chosen
            figures = {
                key: value
                for key, value in result.get("figures", {}).items()
                if key.endswith(chosen)
            }
            shown = ", ".join(f"{key} {value:.1f}" for key, value in figures.items())
            run = f"{result['set']}, {result['overrides'][0]}, seed {result['seed']}"
            print(f"{run}: {shown or result['error']}", flush=True)
            if options.keep:
                keep(options.keep, options, results)
    return results


def main() -> None:
    """Train or join, print and store the results; or draw them."""
    options = arguments()
    if options.draw:
        draw(json.loads((options.keep or KEPT).read_text()), options.draw)
        return
    results = join(options.join) if options.join else train(options)
    if options.keep:
        keep(options.keep, options, results)
    for name, figures in group(results).items():
        print(f"\n{table(name, figures)}")
    report("positions", checks(results), machine_of(options))


if __name__ == "__main__":
    main()
