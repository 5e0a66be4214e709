"""Commands on runs and models: report, compare, calibrate, sweep, distill. `regard.cli` adds them
to the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard import cli_groups as groups
from regard import cli_options as options
from regard import cli_training_options as training
from regard.commands.options import read_settings, run_name
from regard.errors import RegardError
from regard.registry import import_files

CalibratedFolder = Annotated[
    Path | None,
    Parameter(group=groups.FILES, help="Folder to write (default: the card of the bundle itself)."),
]


def report(bundle: options.RunOrBundle, /, *, output: options.ReportOutput = None) -> None:
    """Write report.html: curves, quality, baselines, mistakes, examples, settings and usage.

    It is one page without external resources. `regard train` writes it at the end of every run.
    """
    from regard.model_location import find_model
    from regard.reports import write_report

    print(write_report(find_model(bundle), output))


def compare(*runs: options.Runs, json: options.Json = False) -> None:
    """Compare runs: settings that differ, quality with significance, speed and size.

    Quality is that on the held-out set of the first run; differences from it are tested with a
    paired bootstrap (1,000 resamples).
    """
    from regard.commands.compare import compare as run

    run(list(runs), as_json=json)


def calibrate(
    bundle: options.Bundle,
    /,
    *files: options.Pairs,
    out: CalibratedFolder = None,
    targets: options.Targets = None,
    reading: options.PairReading = None,
    device: options.Device = "auto",
    import_: options.Imports = None,
) -> None:
    """Calibrate the confidence of a model on held-out pairs.

    The confidence of an answer is the probability that it is right. `regard train` calibrates its
    own models; this command does it for imported and int8 models, or for texts of another kind.
    Sources that the model was trained on are left out.
    """
    with options.without_gc():
        from regard.commands.calibrate import calibrate as run
        from regard.text import Corpus

    import_files(import_ or [])
    corpus = Corpus(list(files), targets, **options.reading_arguments(reading))
    options.show_notes(corpus.notes)
    print(run(bundle, corpus, out, device=device))


def sweep(file: training.SweepFile, /, *, device: options.Device = "auto") -> None:
    """Train a grid or a random sample of settings × seeds.

    Run the same command again to resume. It ends with a table and a plot, sweep.tsv and sweep.html
    in the folder of the sweep.
    """
    from regard.commands.sweep import sweep as run

    run(file, device=device, command=["regard", *sys.argv[1:]])


def distill(
    teacher: options.Bundle,
    /,
    *files: options.Pairs,
    targets: options.Targets = None,
    held_out: training.HeldOut = None,
    held_out_targets: training.HeldOutTargets = None,
    ensemble: options.Ensemble = None,
    out: training.StudentFolder = None,
    original: training.OriginalPairs = False,
    size: training.StudentSize = None,
    minutes: training.Minutes = None,
    steps: training.Steps = None,
    epochs: training.Epochs = None,
    config: training.Config = None,
    set_: training.Overrides = None,
    import_: options.Imports = None,
    device: options.Device = "auto",
    extend: training.Extend = False,
    restart: training.RestartRun = False,
    reading: options.Reading = None,
    decoding: options.SearchDecoding = None,
) -> None:
    """Train a small, fast student of a model.

    The teacher decodes all training sources, and the student is trained on its outputs
    (sequence-level distillation). Run the same command again to resume at any point. It ends with
    the quality and speed of both on held-out pairs.
    """
    with options.without_gc():
        from regard.commands.distill import format_distillation
        from regard.distillation import distill as run
        from regard.text import Corpus

    import_files(import_ or [])
    groups: dict[str, Any] = {**read_settings(config, set_ or [])}
    lengths = {"minutes": minutes, "steps": steps, "epochs": epochs}
    groups["train"] |= {name: value for name, value in lengths.items() if value is not None}
    corpus: Callable[..., Corpus] = partial(Corpus, **options.reading_arguments(reading))
    student = run(
        [teacher, *(ensemble or [])],
        corpus(list(files), targets),
        out or Path("runs") / f"{run_name(files[0])}-student",
        held_out=corpus(held_out, held_out_targets) if held_out else None,
        original=original,
        decoding=decoding,
        size=size,
        device=device,
        extend=extend,
        restart=restart,
        command=["regard", *sys.argv[1:]],
        **groups,
    )
    print(format_distillation(student.bundle.card["distillation"]))


def print_settings() -> None:
    """Print the reference of all settings."""
    from regard.commands.settings_reference import format_settings

    print(format_settings())


def check_options(
    sources: Sequence[Path] | None,
    targets: Sequence[Path] | None,
    seeds: int | None,
    *,
    distill: bool,
) -> None:
    """Raise if there are held-out targets without sources, or --distill without --seeds."""
    if targets and not sources:
        raise RegardError("--held-out-targets needs --held-out, the files of held-out sources")
    if distill and seeds is None:
        raise RegardError(
            "--distill needs --seeds N, the models to learn from; `regard distill` learns from an "
            "existing one"
        )


def add_settings(
    groups: Mapping[str, dict[str, Any]], **given: Mapping[str, Any]
) -> dict[str, Any]:
    """Groups of settings with those that an option names; None leaves a setting as it is."""
    added = {group: {n: v for n, v in one.items() if v is not None} for group, one in given.items()}
    return {group: {**values, **added.get(group, {})} for group, values in groups.items()}


def seeds_trainer(seeds: int, distill: bool) -> Callable[..., None]:
    """A function like `regard.train` that trains several seeds and prints mean ± spread."""

    def train(pairs: Any, out: Path, **options: Any) -> None:
        from regard.commands.seeds_table import format_seeds
        from regard.seeds import train_seeds

        print(format_seeds(train_seeds(pairs, out, seeds, distill=distill, **options)))

    return train


# Commands with their order in `regard --help`.
COMMANDS: dict[Callable[..., None], int] = {report: 9, compare: 10}
COMMANDS |= {calibrate: 5, sweep: 11, distill: 15}
