"""The command line. Each command does one job; mistakes are one line on standard error and exit code 2."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Group, Parameter

from regard import __version__
from regard.commands.options import DASH, Draw, Form, Search, dashed
from regard.commands.overrides import settings, stem
from regard.errors import RegardError
from regard.pretrained import resolve_model
from regard.terminal import flush_or_discard, prepare_streams, redirect_to_null

app = App(
    name="regard",
    version=__version__,
    help="Train, run and look into sequence-to-sequence models built on attention.",
    default_parameter=Parameter(negative=()),
    config=dashed,
)
WRITTEN = Group.create_ordered("What is written", default_parameter=Parameter(show_default=False))
SEARCH, CHANCE = Group.create_ordered("Search"), Group.create_ordered("Chance")
Targets = Annotated[
    list[Path] | None,
    Parameter(help="Parallel target files: FILES then hold sources, line by line.", consume_multiple=True),
]
From = Annotated[str | None, Parameter(help="Column of the source: its name, or its number from 1.")]
To = Annotated[str | None, Parameter(help="Column of the target.")]
RUNS = "runs"
BUNDLE = "Folder that `regard train` wrote, or a model that comes along: spelling, spelling-recurrent."


@app.command(sort_key=2)
def train(
    *files: Annotated[Path, Parameter(help="Pairs: TSV, CSV or JSON lines, plain or compressed; - is standard input.")],
    targets: Targets = None,
    held_out: Annotated[
        list[Path] | None,
        Parameter(help="Pairs to measure with (default: split off by a fixed rule).", consume_multiple=True),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Folder of the run (default: runs/NAME of the first file).")] = None,
    source: From = None,
    target: To = None,
    bad_lines: Annotated[
        str, Parameter(help="stop: a bad line is an error; skip: it is counted and written aside.")
    ] = "stop",
    family: Annotated[str | None, Parameter(help="transformer or recurrent (default: transformer).")] = None,
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
    with _importing():
        from regard.config import TextSettings, TrainSettings, parse
        from regard.text import Corpus
        from regard.train.run import Job, run

    groups = settings(config, set_ or [])
    for name, value in (("minutes", minutes), ("steps", steps), ("epochs", epochs)):
        if value is not None:
            groups["train"][name] = value

    kind = groups["model"].pop("kind", "transformer")

    def corpus(paths: list[Path], partners: list[Path] | None = None) -> Corpus:
        return Corpus(paths, partners, source=source, target=target, bad_lines=bad_lines)

    job = Job(
        corpus=corpus(list(files), targets),
        held_out=corpus(held_out) if held_out else None,
        out=out or Path(RUNS) / stem(files[0]),
        family=family or kind,
        size=size,
        model=groups["model"],
        text=parse(TextSettings, groups["text"], "text"),
        train=parse(TrainSettings, groups["train"], "train"),
        device=device,
        tensorboard=tensorboard,
        command=["regard", *sys.argv[1:]],
    )
    run(job)


@app.command(sort_key=1)
def demo(
    *,
    minutes: Annotated[float, Parameter(help="How long to train.")] = 3.0,
    out: Annotated[Path, Parameter(help="Folder of the run.")] = Path("runs/demo"),
    family: Annotated[str, Parameter(help="transformer or recurrent.")] = "transformer",
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train on English spelling → sound, from nothing, and see what came of it."""
    with _importing():
        from regard.train.demo import demonstrate

    demonstrate(minutes=minutes, out=out, family=family, device=device)


@app.command(sort_key=3)
def predict(
    bundle: Annotated[Path, Parameter(help=BUNDLE)],
    /,
    *texts: Annotated[str, Parameter(help="Texts to answer; with neither these nor --input, standard input is read.")],
    input: Annotated[
        list[Path] | None,
        Parameter(help="Files of lines, plain or compressed; - is standard input.", consume_multiple=True),
    ] = None,
    column: Annotated[
        str | None, Parameter(help="Read the files as tables (TSV, CSV, JSON lines); the source is this column.")
    ] = None,
    output: Annotated[
        Path | None, Parameter(help="File to write; it is there when all is answered. The same command goes on.")
    ] = None,
    restart: Annotated[bool, Parameter(help="Begin --output anew, whatever was answered before.")] = False,
    form: Annotated[Form | None, Parameter(name="*", group=WRITTEN)] = None,
    search: Annotated[Search | None, Parameter(name="*", group=SEARCH)] = None,
    draw: Annotated[Draw | None, Parameter(name="*", group=CHANCE)] = None,
    long: Annotated[
        str, Parameter(help="Sources longer than any the model has learned from: warn, refuse or allow.")
    ] = "warn",
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Answer texts: `regard predict runs/demo/bundle attention`, or one answer for each line of files or a pipe.

    Answers come in the order of the lines, one line each; an empty line is answered by an empty one. Columns are
    between tabs. Line ends and tabs inside an answer become spaces; --json keeps them.
    """
    with _importing():
        from regard.commands.inputs import Inputs
        from regard.commands.output_files import check_apart
        from regard.commands.predict import Job
        from regard.commands.predict import predict as answer

    check_apart(output, input or [])
    given = [] if texts == ("-",) else list(texts)
    inputs = Inputs(given, [str(path) for path in input or []], column)
    asked = (form or Form(), search or Search(), draw or Draw())
    answer(Job(resolve_model(bundle), inputs, output, *asked, long=long, device=device, restart=restart))


@app.command(sort_key=4)
def evaluate(
    bundle: Annotated[Path, Parameter(help=BUNDLE)],
    /,
    *files: Annotated[Path, Parameter(help="Pairs it has not learned from: TSV, CSV or JSON lines.")],
    targets: Targets = None,
    source: From = None,
    target: To = None,
    bad_lines: Annotated[str, Parameter(help="stop: a bad line is an error; skip: it is counted.")] = "stop",
    output: Annotated[Path | None, Parameter(help="Write source, answer, nearest right answer and edits here.")] = None,
    json: Annotated[bool, Parameter(help="One JSON object instead of tables.")] = False,
    search: Annotated[Search | None, Parameter(name="*", group=SEARCH)] = None,
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Measure a model on pairs: `regard evaluate runs/demo/bundle test.tsv`.

    Error rates for symbols, BLEU and chrF for running text, each with the interval that holds 95 % of 1,000 resamples
    of the questions; by length of the source; and the worst mistakes. A source that has several targets counts once,
    and each of them is right.
    """
    with _importing():
        from regard.commands.evaluate import evaluate as measure
        from regard.commands.output_files import check_apart
        from regard.text import Corpus

    check_apart(output, [*files, *(targets or [])])
    corpus = Corpus(list(files), targets, source=source, target=target, bad_lines=bad_lines)
    measure(resolve_model(bundle), corpus, search=search or Search(), output=output, device=device, as_json=json)


@app.command(sort_key=5)
def score(
    bundle: Annotated[Path, Parameter(help=BUNDLE)],
    /,
    *files: Annotated[Path, Parameter(help="Pairs: TSV, CSV or JSON lines.")],
    pair: Annotated[
        list[tuple[str, str]] | None, Parameter(help="A source and a target, instead of files (repeatable).")
    ] = None,
    targets: Targets = None,
    source: From = None,
    target: To = None,
    bad_lines: Annotated[str, Parameter(help="stop: a bad line is an error; skip: it is counted.")] = "stop",
    json: Annotated[bool, Parameter(help="JSON lines, with the log-probability of each token.")] = False,
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """How probable the model finds given targets: LOGP⇥SOURCE⇥TARGET for each pair, in order.

    `regard score runs/demo/bundle --pair attention "AH T EH N SH AH N"`. The end of a target counts as a token. The
    perplexity of all comes last, on standard error.
    """
    with _importing():
        from regard.commands.score import score as judge
        from regard.text import Corpus, Pair

    if bool(pair) == bool(files):
        raise RegardError("give files of pairs, or --pair SOURCE TARGET; one of the two")
    given = [Pair(*one) for one in pair or []] or Corpus(
        list(files), targets, source=source, target=target, bad_lines=bad_lines
    )
    judge(resolve_model(bundle), given, device=device, as_json=json)


@app.command(sort_key=6)
def inspect(
    bundle: Annotated[Path, Parameter(help=BUNDLE)],
    /,
    *,
    json: Annotated[bool, Parameter(help="One JSON object instead of tables.")] = False,
) -> None:
    """What a bundle is: how it was trained and measured, its tokenisers, and where its parameters are."""
    with _importing():
        from regard.commands.inspect import inspect as look

    look(resolve_model(bundle), as_json=json)


@app.command(sort_key=7)
def explore(
    *bundles: Annotated[Path, Parameter(help="Folders that `regard train` wrote (default: models that come along).")],
    port: Annotated[int | None, Parameter(help="Port (default: 7341, or a free one if that is taken).")] = None,
    host: Annotated[str, Parameter(help="Address; any but this machine's own needs the printed token.")] = "127.0.0.1",
    no_browser: Annotated[bool, Parameter(help="Only serve; open no page.")] = False,
) -> None:
    """Look into a model: `regard explore runs/demo/bundle` opens a page where every number shows its arithmetic.

    The page comes from this machine and asks nothing of any other. Ctrl-C ends it.
    """
    with _importing():
        from regard.commands.explore import explore as open_page

    open_page([resolve_model(bundle) for bundle in bundles], port=port, host=host, browser=not no_browser)


@app.command(sort_key=8)
def bench(
    *,
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str | None, Parameter(help="float32, bfloat16 or float16 (default: by the device).")] = None,
    causal: Annotated[bool, Parameter(help="Each query sees only itself and what is before it.")] = False,
    json: Annotated[bool, Parameter(help="One JSON object instead of tables.")] = False,
) -> None:
    """Measure the backends of attention on this machine, beside what `auto` takes.

    A row for each kind of attention: its score or bias, and its sequences, of one length and of many. A column for each
    backend, in milliseconds; the last says how near auto's choice comes to the machine's own large products and copies.
    At the end: where auto is more than 10 % slower than the fastest. About a minute; longer on a GPU, where flex must
    be compiled.
    """
    with _importing():
        from regard.commands.bench import bench as measure

    measure(device=device, precision=precision, masked=causal, as_json=json)


def main(arguments: list[str] | None = None) -> None:
    """The command line as a program."""
    prepare_streams()
    words = sys.argv[1:] if arguments is None else arguments
    words = [DASH if word == "-" else word for word in words]
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # what cannot be written is said here, not by the interpreter at its exit
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except (RegardError, CycloptsError, OSError) as error:
        flush_or_discard(sys.stdout)  # what was answered before it
        print(f"regard: {error}".replace(DASH, "-").replace(repr(DASH)[1:-1], "-"), file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, RegardError) else 2)
    sys.exit(0)


@contextmanager
def _importing() -> Iterator[None]:
    """Imports make a million objects that all stay: looking for garbage among them would take a quarter of a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
