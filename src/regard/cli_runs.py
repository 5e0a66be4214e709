"""Commands on runs: report, compare and sweep. `regard.cli` adds them to the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard import cli_options as options


def report(bundle: options.RunOrBundle, /, *, output: options.ReportOutput = None) -> None:
    """Write report.html: curves, quality, baselines, mistakes, examples, settings and usage.

    `regard report runs/words` writes one page without external resources. `regard train` writes it
    at the end of every run.
    """
    from regard.pretrained import resolve_model
    from regard.reports import write_report

    print(write_report(resolve_model(bundle), output))


def compare(*runs: options.Runs, json: options.Json = False) -> None:
    """Compare runs: settings that differ, quality with significance, speed and size.

    Quality is that on the held-out set of the first run; differences from it are tested with a
    paired bootstrap (1,000 resamples).
    """
    from regard.commands.compare import compare as run

    run(list(runs), as_json=json)


def sweep(file: options.SweepFile, /, *, device: options.Device = "auto") -> None:
    """Train a grid or a random sample of settings × seeds: `regard sweep sweep.toml`.

    Run the same command again to resume. It ends with a table and a plot, sweep.tsv and sweep.html
    in the folder of the sweep.
    """
    from regard.commands.sweep import sweep as run

    run(file, device=device, command=["regard", *sys.argv[1:]])


def print_settings() -> None:
    """Print the reference of all settings."""
    from regard.commands.settings_reference import format_settings

    print(format_settings())


def seeds_trainer(seeds: int, ensemble: bool) -> Callable[..., None]:
    """A function like `regard.train` that trains several seeds and prints mean ± spread."""

    def train(pairs: Any, out: Path, **options: Any) -> None:
        from regard.commands.seeds_table import format_seeds
        from regard.seeds import train_seeds

        print(format_seeds(train_seeds(pairs, out, seeds, ensemble=ensemble, **options)))

    return train


# Commands with their order in `regard --help`.
COMMANDS: dict[Callable[..., None], int] = {report: 9, compare: 10, sweep: 11}
