"""Position encodings compared fairly: the same recipe, steps and seeds, with nothing changed but the encoding.

    python benchmarks/positions.py --data DIR --parallel 8 --keep   # all encodings on all sets, three seeds
    python benchmarks/positions.py --data DIR --out RUNS --keep     # so that the same command goes on when interrupted
    python benchmarks/positions.py --join A.json B.json --keep      # parts that were run apart, as one
    python benchmarks/positions.py --draw                           # docs/pictures/positions.png from the kept results

Captions and the dictionary are tested on lengths like those learned from. Two sets test longer ones: the dictionary
learned from words of up to 8 letters, and SCAN from up to 22 or 26 actions. Learned positions have no way to know
places that no training text reached; relative ones have seen every distance that is near.
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

# Updates for each: fewer than the recipes', for what is compared is encodings; and every pair is read once.
SCAN = ("scan-length", "scan-length-26", "scan-around-right")
STEPS = {"multi30k-en-de-tok": 1_500, "cmudict": 1_500, "cmudict-short": 1_000} | dict.fromkeys(SCAN, 1_500)
ALIKE = ("train.rdrop=0", "train.bpe_dropout=0", "train.evaluations=1")
SMALLER = ("model.width=256", "model.heads=4", "model.ffn_width=768", "train.learning_rate=0.003")
SMALLEST = (
    "model.width=128",
    "model.heads=8",
    "model.encoder_layers=3",
    "model.decoder_layers=3",
    "model.ffn_width=256",
)
LIKE_AUTO = (
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
QUICKER = (*SMALLEST, "model.activation=relu", "model.norm_order=pre", "model.dropout=0.1", *LIKE_AUTO, *AVERAGED)
INSTEAD = {"multi30k-en-de-tok": ("model.dropout=0.3",), "cmudict": SMALLER, "cmudict-short": SMALLER} | dict.fromkeys(
    SCAN, QUICKER
)
LONGER = ("scan-length", "scan-length-26")  # where relative positions are said to go on and absolute ones not to
RELATIVE = ("rotary", "alibi", "distance", "t5", "shaw")
KEPT = Path(__file__).parent / "results" / "positions.json"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "positions.png"


def trials(options: argparse.Namespace, folder: Path) -> Iterator[Trial]:
    """Every encoding on every set with every seed; seeds outermost, so that an early end has compared all."""
    for name in options.sets:
        write(READERS[name](options.data), folder / name / "parts")
    for seed in options.seeds:
        for name in options.sets:
            steps = max(1, round(options.share * STEPS[name]))
            for position in options.only or POSITIONS:
                out = folder / name / f"{position}-{seed}"
                overrides = (f"model.position={position}", *ALIKE, *INSTEAD.get(name, ()), *options.set)
                told = {"ends": {"steps": steps}, "command": tuple(command("positions", options))}
                yield Trial(name, "recipe", seed, folder / name / "parts", out, overrides, **told)


def found(results: Sequence[Result]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """By set and figure, the numbers of each encoding over the seeds; figures in groups (by length) too."""
    sorted_out: dict[str, dict[str, dict[str, list[float]]]] = {}
    for result in results:
        if "error" in result:
            continue
        position = result["overrides"][0].partition("=")[2]
        figures = dict(result["figures"])
        for name, groups in result["beside"].items():
            if name.endswith(" groups") and not name.startswith("dev "):
                figures |= {f"{group} symbols": value for group, value in groups.items()}
        for figure, value in figures.items():
            own = sorted_out.setdefault(result["set"], {}).setdefault(figure, {})
            own.setdefault(position, []).append(value)
    return sorted_out


def table(name: str, figures: dict[str, dict[str, list[float]]]) -> str:
    """A row for each encoding: mean and standard deviation of each figure that belongs to the set."""
    metric = CONVENTIONS[name].chosen
    shown = [figure for figure in figures if figure.split()[-1] == metric]
    positions = [name for name in POSITIONS if any(name in figures[figure] for figure in shown)]
    lines = [[f"{name}: {metric}", *(figure.rsplit(" ", 1)[0] for figure in shown)]]
    lines += [[position, *(_cell(figures[figure].get(position, [])) for figure in shown)] for position in positions]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else ""
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def checks(results: Sequence[Result]) -> list[Check]:
    """That all ran; and, for the sets that test longer answers alone, by how much the best relative encoding wins."""
    good = [result for result in results if "error" not in result]
    made = [Check("trainings that ended well", len(good), len(results), len(results), len(good) == len(results))]
    for name, figures in found(results).items():
        means = {position: statistics.fmean(values) for position, values in figures.get("test exact", {}).items()}
        near = {position: means[position] for position in RELATIVE if position in means}
        if name in LONGER and near and "sinusoidal" in means:
            best = max(near, key=near.__getitem__)
            gain = near[best] - means["sinusoidal"]
            made.append(Check(f"{name}, exact: {best} over sinusoidal", gain, 100.0, 0.0, gain > 0))
    return made


def draw(kept: dict[str, Any], path: Path) -> None:
    """Lines by length for the sets that test longer answers, points with their spread for captions. A model without
    positions is drawn for SCAN alone: elsewhere it is so far off that the others would be one line."""
    from regard.plots.figures import blank, place, trim
    from regard.plots.palette import INK, head_colour

    both = found(kept["results"])
    figure, marks = blank(), "os^vDPX*"
    panels = [
        ("scan-length-26", " symbols", "actions in the answer (26 at most in training)", "right, %"),
        ("cmudict-short", " wer", "letters (8 at most in training)", "words wrong, %"),
        ("multi30k-en-de-tok", " bleu", "test set", "BLEU"),
    ]
    for column, (name, ending, across, up) in enumerate(panel for panel in panels if panel[0] in both):
        axes = place(figure, 4.6 * column, 0, 3.9, 3.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlabel=across, ylabel=up, title=name)
        own = {key: values for key, values in both.get(name, {}).items() if key.endswith(ending)}
        own = {key.removesuffix(ending): values for key, values in own.items() if not key.startswith("dev ")}
        names = sorted(own, key=lambda key: (not key.isdecimal(), int(key) if key.isdecimal() else 0))
        for i, position in enumerate(POSITIONS):
            values = [own[key].get(position, []) for key in names]
            if all(values) and (position != "none" or ending == " symbols"):
                means = [statistics.fmean(one) for one in values]
                errors = [statistics.stdev(one) if len(one) > 1 else 0.0 for one in values]
                style: dict[str, Any] = {"color": head_colour(i), "marker": marks[i], "markersize": 5, "capsize": 2}
                line, aside = ("none", 0.07 * (i - 4)) if ending == " bleu" else ("-", 0.0)
                places = [at + aside for at in range(len(names))]
                axes.errorbar(places, means, errors, linestyle=line, label=position, **style)
        axes.set_xticks(range(len(names)), names, color=INK)
    told = figure.axes[0].get_legend_handles_labels()
    figure.axes[-1].legend(*told, loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    trim(figure).savefig(path)


def joined(paths: Sequence[Path]) -> list[Result]:
    """The results of all; of two for the same set, encoding and seed the later counts."""
    every = [result for path in paths for result in json.loads(path.read_text())["results"]]
    return list({(one["set"], one["overrides"][0], one["seed"]): one for one in every}.values())


def where(options: argparse.Namespace) -> str:
    """The machine; of what was joined, the one it was made on."""
    return json.loads(options.join[0].read_text())["machine"] if options.join else machine()


def keep(path: Path, options: argparse.Namespace, results: Sequence[Result]) -> None:
    """All results so far as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    thin = [{key: value for key, value in one.items() if key not in ("decisions", "settings")} for one in results]
    asked = {
        "seeds": sorted({one["seed"] for one in results}),
        "steps": STEPS,
        "share": options.share,
        "set": options.set,
    }
    path.write_text(
        json.dumps({"machine": where(options), **asked, "results": thin}, indent=1, ensure_ascii=False) + "\n"
    )


def arguments() -> argparse.Namespace:
    """What may be chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds the data sets")
    parser.add_argument("--sets", nargs="+", choices=STEPS, default=list(STEPS), metavar="NAME", help=", ".join(STEPS))
    parser.add_argument("--only", nargs="+", choices=POSITIONS, metavar="POSITION", help=", ".join(POSITIONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of steps")
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.NAME=VALUE", help="over all recipes")
    parser.add_argument("--parallel", type=int, default=1, help="trainings side by side")
    parser.add_argument("--out", type=Path, help="keep the runs here; the same command goes on (default: nowhere)")
    parser.add_argument("--keep", type=Path, nargs="?", const=KEPT, help="write all results after each (results/)")
    parser.add_argument("--join", type=Path, nargs="+", default=[], metavar="FILE", help="kept results, train nothing")
    parser.add_argument("--draw", type=Path, nargs="?", const=PICTURE, help="draw the kept results, train nothing")
    options = parser.parse_args()
    if not (options.data or options.draw or options.join):
        parser.error("--data is missing: the folder that holds the data sets")
    return options


def trained(options: argparse.Namespace) -> list[Result]:
    """All results, each told and kept as it comes."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as nowhere:
        asked = list(trials(options, options.out or Path(nowhere)))
        print(f"{machine()}: {len(asked)} trainings", flush=True)
        for result in outcomes(asked, options.parallel):
            results.append(result)
            chosen = CONVENTIONS[result["set"]].chosen
            figures = {key: value for key, value in result.get("figures", {}).items() if key.endswith(chosen)}
            told = ", ".join(f"{key} {value:.1f}" for key, value in figures.items()) or result["error"]
            print(f"{result['set']}, {result['overrides'][0]}, seed {result['seed']}: {told}", flush=True)
            if options.keep:
                keep(options.keep, options, results)
    return results


def main() -> None:
    """Train or join, tell and keep; or draw."""
    options = arguments()
    if options.draw:
        draw(json.loads((options.keep or KEPT).read_text()), options.draw)
        return
    results = joined(options.join) if options.join else trained(options)
    if options.keep:
        keep(options.keep, options, results)
    for name, figures in found(results).items():
        print(f"\n{table(name, figures)}")
    report("positions", checks(results), where(options))


if __name__ == "__main__":
    main()
