"""The command line. Each command does one job; mistakes are one line on standard error and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from regard import __version__
from regard.errors import RegardError

app = App(
    name="regard",
    version=__version__,
    help="Train, run and look into sequence-to-sequence models built on attention.",
    default_parameter=Parameter(negative=()),
)
RUNS = "runs"


@app.command
def train(
    *files: Annotated[Path, Parameter(help="Pairs: TSV, CSV or JSON lines, plain or compressed; - is standard input.")],
    targets: Annotated[
        list[Path] | None, Parameter(help="Parallel target files: FILES then hold sources, line by line.")
    ] = None,
    held_out: Annotated[
        list[Path] | None, Parameter(help="Pairs to measure with (default: split off by a fixed rule).")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Folder of the run (default: runs/NAME of the first file).")] = None,
    source: Annotated[str | None, Parameter(help="Column of the source: its name, or its number from 1.")] = None,
    target: Annotated[str | None, Parameter(help="Column of the target.")] = None,
    bad_lines: Annotated[
        str, Parameter(help="stop: a bad line is an error; skip: it is counted and written aside.")
    ] = "stop",
    family: Annotated[str, Parameter(help="transformer or recurrent.")] = "transformer",
    size: Annotated[str, Parameter(help="auto, tiny, small, base or big.")] = "auto",
    minutes: Annotated[float | None, Parameter(help="Train about so long; the schedule ends there.")] = None,
    steps: Annotated[int | None, Parameter(help="Train for so many updates.")] = None,
    epochs: Annotated[float | None, Parameter(help="Train so many times through the data.")] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file with [model], [text] and [train] settings.")] = None,
    set_: Annotated[
        list[str] | None, Parameter(name="--set", help="Any setting, as model.width=128 (repeatable).")
    ] = None,
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
    tensorboard: Annotated[bool, Parameter(help="Write TensorBoard events too.")] = False,
) -> None:
    """Train a model on pairs of text: `regard train pairs.tsv` is enough.

    The run is left in its folder, the model in `bundle` inside it. The same command goes on after any interruption.
    """
    from regard.config import Text, Train, parse
    from regard.text import Corpus
    from regard.train.run import Job, run

    groups = _settings(config, set_ or [])
    for name, value in (("minutes", minutes), ("steps", steps), ("epochs", epochs)):
        if value is not None:
            groups["train"][name] = value

    def corpus(paths: list[Path], partners: list[Path] | None = None) -> Corpus:
        return Corpus(paths, partners, source=_column(source), target=_column(target), bad_lines=bad_lines)

    job = Job(
        corpus=corpus(list(files), targets),
        held_out=corpus(held_out) if held_out else None,
        out=out or Path(RUNS) / _stem(files[0]),
        family=groups["model"].pop("kind", family),
        size=size,
        model=groups["model"],
        text=parse(Text, groups["text"], "text"),
        train=parse(Train, groups["train"], "train"),
        device=device,
        tensorboard=tensorboard,
        command=["regard", *sys.argv[1:]],
    )
    run(job)


@app.command
def demo(
    *,
    minutes: Annotated[float, Parameter(help="How long to train.")] = 3.0,
    out: Annotated[Path, Parameter(help="Folder of the run.")] = Path("runs/demo"),
    family: Annotated[str, Parameter(help="transformer or recurrent.")] = "transformer",
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train on English spelling → sound, from nothing, and see what came of it."""
    from regard.train.show import demonstrate

    demonstrate(minutes=minutes, out=out, family=family, device=device)


def main(arguments: list[str] | None = None) -> None:
    """The command line as a program."""
    words = sys.argv[1:] if arguments is None else arguments
    words = ["./-" if word == "-" else word for word in words]  # which is Path("-"), and reads as no option
    try:
        app(words, exit_on_error=False, print_error=False)
    except BrokenPipeError:
        sys.exit(0)
    except (RegardError, CycloptsError, OSError) as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(130 if type(error).__name__ == "Interrupted" else 2)


def _settings(config: Path | None, overrides: list[str]) -> dict[str, dict[str, Any]]:
    """The groups of settings from a file and from --set, the latter over the former."""
    import tomllib

    from regard.config import read_toml
    from regard.errors import suggestion

    groups: dict[str, dict[str, Any]] = {"model": {}, "text": {}, "train": {}}

    def put(group: str, values: Any, where: str) -> None:
        if group not in groups or not isinstance(values, dict):
            raise RegardError(f"unknown setting {group!r} in {where}; {suggestion(group, groups)}")
        groups[group].update(values)

    for group, values in (read_toml(config) if config else {}).items():
        put(group, values, str(config))
    for override in overrides:
        name, equals, value = override.partition("=")
        group, dot, key = name.partition(".")
        if not (equals and dot and key):
            raise RegardError(f"--set wants GROUP.NAME=VALUE, such as model.width=128; got {override!r}")
        try:
            put(group, {key: tomllib.loads(f"x = {value}")["x"]}, "--set")
        except tomllib.TOMLDecodeError:
            put(group, {key: value}, "--set")  # a bare word is a string
    return groups


def _column(name: str | None) -> str | int | None:
    return int(name) if name is not None and name.isdecimal() else name


def _stem(path: Path) -> str:
    return path.name.split(".")[0] or "run" if str(path) != "-" else "stdin"


if __name__ == "__main__":
    main()
