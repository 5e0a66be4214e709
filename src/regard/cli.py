"""The command line. Each command does one job; errors are one line on stderr and exit code 2."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from cyclopts import App, CycloptsError, Parameter

from regard import __version__, cli_bulk, cli_runs, cli_serve, cli_tools
from regard import cli_options as options
from regard import cli_training_options as training
from regard.cli_groups import shown_default
from regard.cli_help import describe_commands
from regard.cli_setup import add_commands
from regard.commands.options import DASH, OutputFormat, read_settings, restore_dashes, run_name
from regard.decoding_options import DecodingOptions, SearchOptions
from regard.errors import RegardError
from regard.model_location import find_model
from regard.registry import import_files
from regard.signals import Terminated, exit_code, terminable
from regard.terminal import flush_or_discard, prepare_streams, redirect_to_null


def version() -> str:
    """The version, and whether the native engine is available."""
    from regard.native.library import describe_engine

    return f"{__version__}\n{describe_engine()}"


app = App(
    name="regard",
    version=version,
    help="Train, run and visualise attention-based sequence-to-sequence models.",
    default_parameter=Parameter(negative=(), show_default=shown_default),
    config=restore_dashes,
    suppress_keyboard_interrupt=False,
)


@app.command(sort_key=2)
def train(
    *files: options.Pairs,
    targets: options.Targets = None,
    held_out: training.HeldOut = None,
    held_out_targets: training.HeldOutTargets = None,
    out: training.RunFolder = None,
    reading: options.Reading = None,
    family: training.OptionalFamily = None,
    size: training.Size = "auto",
    minutes: training.Minutes = None,
    steps: training.Steps = None,
    epochs: training.Epochs = None,
    config: training.Config = None,
    set_: training.Overrides = None,
    import_: options.Imports = None,
    device: options.Device = "auto",
    tensorboard: training.Tensorboard = False,
    from_: training.From = None,
    tokenizer: training.GivenTokenizer = None,
    languages: options.Languages = None,
    freeze: training.Freeze = None,
    extend: training.Extend = False,
    restart: training.RestartRun = False,
    seeds: training.Seeds = None,
    distill: training.DistillSeeds = False,
    help_settings: training.HelpSettings = False,
) -> None:
    """Train a model on pairs of text, from a file to a model and a report.

    The model is written to `bundle` in the folder of the run. Run the same command again to resume
    after an interruption.
    """
    if help_settings:
        cli_runs.print_settings()
        return
    with options.without_gc():
        from regard import api
        from regard.text import Corpus

    import_files(import_ or [])
    given = {"minutes": minutes, "steps": steps, "epochs": epochs, "freeze": freeze}
    text, groups = options.language_codes(languages), read_settings(config, set_ or [])
    cli_runs.check_options(held_out, held_out_targets, seeds, distill=distill)
    corpus: Callable[..., Corpus] = partial(Corpus, **options.reading_arguments(reading))
    start = api.train if seeds is None else cli_runs.seeds_trainer(seeds, distill)
    start(
        corpus(list(files), targets),
        out or Path("runs") / run_name(files[0]),
        held_out=corpus(held_out, held_out_targets) if held_out else None,
        init=from_,
        tokenizer=tokenizer,
        family=family,
        size=size,
        device=device,
        tensorboard=tensorboard,
        extend=extend,
        restart=restart,
        command=["regard", *sys.argv[1:]],
        **cli_runs.add_settings(groups, train=given, text=text),
    )


@app.command(sort_key=1)
def demo(
    *,
    minutes: training.DemoMinutes = 3.0,
    out: training.DemoFolder = Path("runs/demo"),
    family: training.Family = "transformer",
    device: options.Device = "auto",
) -> None:
    """Train a small model on English spelling → sound and show its answers."""
    with options.without_gc():
        from regard.reports import write_report
        from regard.training.demo import demonstrate

    demonstrate(minutes=minutes, out=out, family=family, device=device)
    print(f"report: {write_report(out)}", file=sys.stderr)


@app.command(sort_key=3)
def predict(
    bundle: options.Bundle,
    /,
    *texts: options.Texts,
    input: options.InputFiles = None,
    column: options.Column = None,
    reading: options.TableReading = None,
    ensemble: options.Ensemble = None,
    output: options.ResumableOutput = None,
    restart: options.Restart = False,
    shard: cli_bulk.ShardOption = None,
    form: options.Format = None,
    decoding: options.Decoding = None,
    precision: options.Precision = None,
    long: options.Long = "warn",
    max_source_length: options.MaxSourceLength = None,
    import_: options.Imports = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
) -> None:
    """Answer texts: arguments, lines of files, columns of tables, or a pipe.

    Answers keep the order of the lines, one line each; an empty line gives an empty answer. With
    --n-best, each line is LINE⇥SCORE⇥ANSWER. Line ends and tabs in an answer become spaces;
    --json keeps them. A source that is far too long is rejected: its answer is empty, and the exit
    code is 1. A .csv, .tsv, .xlsx, .parquet or .arrow file is read as a table, and source and
    output are written side by side in the format of the --output file. --shard 3/64 answers the
    third of 64 parts of the input; `regard join` joins them.
    """
    with options.without_gc():
        from regard.commands.input_protection import PREDICT_FILES, check_not_input
        from regard.commands.inputs import open_inputs
        from regard.commands.predict import PredictJob
        from regard.commands.predict import predict as run
        from regard.commands.shards import Shard

    part = None if shard is None else Shard.parse(shard)
    check_not_input(output, input or [], PREDICT_FILES)
    import_files(import_ or [])
    arguments = [] if texts == ("-",) else list(texts)
    asked = asdict(reading or options.InputOptions())
    job = PredictJob(
        bundles=[find_model(one) for one in (bundle, *(ensemble or []))],
        inputs=open_inputs(arguments, [str(path) for path in input or []], column, part, **asked),
        output=output,
        form=form or OutputFormat(),
        decoding=decoding or DecodingOptions(),
        precision=precision,
        long=long,
        max_source_length=max_source_length,
        engine=engine,
        device=device,
        restart=restart,
        shard=part,
    )
    run(job)


@app.command(sort_key=4)
def evaluate(
    bundle: options.Bundle,
    /,
    *files: options.Pairs,
    targets: options.Targets = None,
    reading: options.Reading = None,
    output: options.TableOutput = None,
    json: options.Json = False,
    decoding: options.SearchDecoding = None,
    precision: options.Precision = None,
    import_: options.Imports = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
) -> None:
    """Evaluate a model on held-out pairs: error rates, BLEU, chrF, the worst errors.

    Reports error rates for symbols, BLEU and chrF for running text, each with a 95 %
    interval, the same by source length, the confidence against the share of right outputs, and the
    worst errors. A source with several targets counts once, and each target is a correct answer.
    """
    with options.without_gc():
        from regard.commands.evaluate import evaluate as run
        from regard.commands.input_protection import TABLE_FILES, check_not_input
        from regard.text import Corpus

    check_not_input(output, [*files, *(targets or [])], TABLE_FILES)
    import_files(import_ or [])
    corpus = Corpus(list(files), targets, **options.reading_arguments(reading))
    options.show_notes(corpus.notes)
    run(
        find_model(bundle),
        corpus,
        decoding=decoding or SearchOptions(),
        as_json=json,
        output=output,
        engine=engine,
        device=device,
        precision=precision,
    )


@app.command(sort_key=5)
def score(
    bundle: options.Bundle,
    /,
    *files: options.Pairs,
    pair: options.PairArguments = None,
    targets: options.Targets = None,
    reading: options.Reading = None,
    json: options.JsonLines = False,
    languages: options.Languages = None,
    import_: options.Imports = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
) -> None:
    """Score given targets: their log-probabilities and the perplexity.

    Prints LOGP⇥SOURCE⇥TARGET for each pair, in order, and the perplexity on stderr. The end counts
    as a token.
    """
    with options.without_gc():
        from regard.commands.score import score as run
        from regard.text import Corpus, Pair

    if bool(pair) == bool(files):
        raise RegardError("give either files of pairs or --pair SOURCE TARGET")
    import_files(import_ or [])
    pairs: list[Pair] | Corpus = [Pair(*one) for one in pair or []]
    if not pairs:
        pairs = Corpus(list(files), targets, **options.reading_arguments(reading))
        options.show_notes(pairs.notes)
    codes = options.language_codes(languages)
    run(find_model(bundle), pairs, engine=engine, device=device, as_json=json, languages=codes)


for group in (cli_bulk.COMMANDS, cli_tools.COMMANDS, cli_serve.COMMANDS, cli_runs.COMMANDS):
    for command, key in group.items():
        app.command(command, sort_key=key)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line as a program."""
    prepare_streams()
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        print(version())  # as it is: the parser would wrap its lines
        sys.exit(0)
    words = [DASH if word == "-" else word for word in words]
    try:
        with terminable():
            app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # here, so that a failure is reported like any other error
    except KeyboardInterrupt as interrupt:
        flush_or_discard(sys.stdout)
        number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
        sys.exit(exit_code(number))
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except (RegardError, CycloptsError, OSError) as error:
        flush_or_discard(sys.stdout)  # the answers before the error
        text = f"regard: {error}".replace(DASH, "-").replace(repr(DASH)[1:-1], "-")
        print(text, file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, RegardError) else 2)
    sys.exit(0)


add_commands(app)
describe_commands(app)
