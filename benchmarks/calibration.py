"""Calibration of confidence: the expected calibration error on test sets, before and after.

    python benchmarks/calibration.py --data DIR cmudict=runs/cmudict names-ru=runs/names \\
        inflection-2017=runs/inflection multi30k-en-de-raw=runs/multi30k
    python benchmarks/calibration.py --data DIR cmudict-included=spelling \\
        tatoeba-en-de=english-german
    python benchmarks/calibration.py g2p=runs/g2p=test.tsv        # a test file of pairs

Each argument is SET=BUNDLE, with a set of docs/quality.md in the folder DIR, or
NAME=BUNDLE=TEST.tsv[=DEV.tsv]. A bundle has the calibration that `regard train` fitted on its
held-out set; one without (the included models) is calibrated here, on the dev part of the set. The
test part is used only to measure. Before: the model's own probability of its output; after: its
confidence; "chance": what exact confidences would show on as many outputs.
"""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from harness import Check, report
from quality_sets import READERS, Example

import regard
from regard.answer import Answer
from regard.bundle import save
from regard.pipeline import Pipeline
from regard.quality import References, predict_all, report_answers
from regard.text import Corpus, group_references
from regard.training import cmudict
from regard.training.calibration_fit import Outcome, fit_calibration

INCLUDED = "cmudict-included"  # the split that the included spelling models were trained on
MAX_DEV = 5_000  # outputs that a calibration is fitted on


class Part(NamedTuple):
    """The dev and test references of a set; dev may be empty."""

    dev: References
    test: References


class Measured(NamedTuple):
    """One set: outputs, accuracy and the calibration of `EvaluationReport`."""

    name: str
    sources: int
    accuracy: float
    found: dict[str, Any]


def read_set(name: str, files: list[str], data: Path | None, most: int | None) -> Part:
    """The references of a set, or of files of pairs."""
    if files:
        test, *dev = (group_references(Corpus([Path(file)])) for file in files)
        return Part(dev[0] if dev else {}, _some(test, most))
    if name == INCLUDED:
        parts: dict[str, dict[str, list[str]]] = {"dev": {}, "test": {}}
        for word, phones in cmudict.dictionary():
            if (part := cmudict.part(word)) in parts:
                parts[part].setdefault(word, []).append(phones)
        return Part(_some(parts["dev"], MAX_DEV), _some(parts["test"], most))
    if name not in READERS or data is None:
        known = ", ".join([*READERS, INCLUDED])
        raise SystemExit(f"{name!r} needs --data and one of {known}; or NAME=BUNDLE=TEST.tsv")
    found = READERS[name](data)
    test = [one for some in found.tests.values() for one in some]
    return Part(_some(_references(found.dev), MAX_DEV), _some(_references(test), most))


def _references(examples: Iterable[Example]) -> References:
    grouped: dict[str, list[str]] = {}
    for one in examples:
        grouped.setdefault(one.source, []).extend(one.references)
    return grouped


def _some(references: References, most: int | None) -> References:
    """At most this many sources, evenly spread."""
    items = list(references.items())
    count = len(items) if most is None else min(most, len(items))
    return dict(items[i * len(items) // count] for i in range(count))


def decode(pipeline: Pipeline, references: References) -> list[Answer]:
    """The best answers of the default search."""
    return predict_all(pipeline, references, None, lambda count: None)


def calibrated(pipeline: Pipeline, dev: References, folder: Path, device: str) -> Pipeline:
    """The pipeline with the calibration of its card, or else a copy with one fitted on dev."""
    card = pipeline.bundle.card
    if "weights" in card.get("calibration", {}):
        return pipeline
    if not dev:
        raise SystemExit("the bundle has no calibration; add =DEV.tsv, pairs to fit one on")
    answers = zip(decode(pipeline, dev), dev.values(), strict=True)
    fit = fit_calibration([Outcome(a.logp, len(a.logps), a.text in some) for a, some in answers])
    save(folder, pipeline.bundle.with_card({**card, "calibration": fit.to_json()}))
    return regard.load(folder, device=device, long="allow")


def measure(argument: str, data: Path | None, device: str, most: int | None) -> Measured:
    """Evaluate the bundle of one argument."""
    name, bundle, *files = argument.split("=")
    part = read_set(name, files, data, most)
    with tempfile.TemporaryDirectory() as folder:
        loaded = regard.load(bundle, device=device, long="allow")
        pipeline = calibrated(loaded, part.dev, Path(folder) / "bundle", device)
        answers = decode(pipeline, part.test)
    found = report_answers(pipeline, part.test, answers, 1.0).calibration
    right = [a.text in some for a, some in zip(answers, part.test.values(), strict=True)]
    return Measured(name, len(right), 100 * sum(right) / len(right), found)


def checks(results: Iterable[Measured]) -> list[Check]:
    """Before, after and chance of each set; the confidence must be better than the probability."""
    made = []
    for name, sources, accuracy, found in results:
        before, after, floor = (found[key] for key in ("before", "after", "floor"))
        made += [
            Check(f"{name}: test sources", sources, None, None, True),
            Check(f"{name}: right, %", accuracy, None, None, True),
            Check(f"{name}: calibration error before", before, floor, None, True),
            Check(f"{name}: calibration error after", after, floor, before, after < before),
        ]
    return made


def main() -> None:
    """Parse the command line and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", metavar="SET=BUNDLE")
    parser.add_argument("--data", type=Path, help="folder with the data sets of docs/quality.md")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--most", type=int, help="measure at most this many test sources")
    options = parser.parse_args()
    results = []
    for argument in options.sets:
        results.append(measure(argument, options.data, options.device, options.most))
        name, sources, accuracy, found = results[-1]
        print(
            f"{name}: {sources:,} sources, {accuracy:.1f} % right, method {found['method']}, "
            f"error {found['before']:.2f} → {found['after']:.2f} (chance {found['floor']:.2f})"
        )
        for one in found["bins"]:
            print(f"    {one['confidence']:5.1f} % confident, {one['accuracy']:5.1f} % right")
    report("calibration", checks(results))


if __name__ == "__main__":
    main()
