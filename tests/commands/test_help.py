"""Help pages: every option has a one-line description, and help does not load torch."""

import inspect
import shlex
import subprocess
import sys
from dataclasses import fields

import pytest
from cyclopts import CycloptsError

from regard.cli import app, main
from regard.cli_help import COMMAND_GROUPS, EXAMPLES
from regard.commands.options import OutputFormat, read_settings
from regard.config import TextSettings, TrainSettings, TransformerSettings
from regard.decoding_options import DecodingOptions, SearchOptions, option_help, option_names
from tests.commands.small import regard


def test_help_names_every_option(capsys):
    options = {
        (): ["train", "demo", "predict", "evaluate", "score", "inspect", "--version"],
        ("train",): [
            *(
                "--import",
                "--targets",
                "--held-out",
                "--out",
                "--source",
                "--target",
                "--bad-lines",
                "--family",
                "--size",
            ),
            *("--minutes", "--steps", "--epochs", "--config", "--set", "--device", "--tensorboard"),
            *("--tokenizer", "--source-language", "--target-language"),
        ],
        ("demo",): ["--minutes", "--out", "--family", "--device"],
        ("predict",): [
            *(
                "--input",
                "--column",
                "--output",
                "--restart",
                "--scores",
                "--n-best",
                "--alignments",
                "--json",
            ),
            *(
                "--beam",
                "--length-penalty",
                "--min-length",
                "--max-length",
                "--prefix",
                "--ban",
                "--require",
                "--repetition-penalty",
            ),
            *(
                "--no-repeat-ngram",
                "--sample",
                "--temperature",
                "--top-k",
                "--top-p",
                "--min-p",
                "--seed",
                "--long",
            ),
            *("LINE⇥SCORE⇥ANSWER", "--device", "--source-language", "--target-language"),
        ],
        ("evaluate",): [
            "--targets",
            "--source",
            "--target",
            "--bad-lines",
            "--output",
            "--json",
            "--beam",
            "--device",
        ],
        ("score",): [
            "--pair",
            "--targets",
            "--source",
            "--target",
            "--bad-lines",
            "--json",
            "LOGP⇥SOURCE⇥TARGET",
        ],
        ("inspect",): ["--json"],
    }
    for command, names in options.items():
        with pytest.raises(SystemExit) as ended:
            main([*command, "--help"])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert [name for name in names if name not in text] == []


def test_help_names_no_option_of_other_commands(capsys):
    for command, has in (("evaluate", False), ("predict", True)):
        out, _ = regard(capsys, command, "--help")
        assert ("--n-best" in out) == has
        assert "or the number of outputs if larger" in " ".join(out.replace("│", " ").split())


def test_predict_loads_torch_and_nothing_heavier(bundle):
    heavy = [
        "rich",
        "sacrebleu",
        "rapidfuzz",
        "scipy",
        "sympy",
        "torch._dynamo",
        "pandas",
        "transformers",
        "fastapi",
    ]
    script = (
        "import sys\nfrom regard.cli import main\n"
        f"try: main(['predict', {str(bundle)!r}, 'abc'])\n"
        f"finally: print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=900
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_does_not_load_torch():
    script = (
        "import sys\nfrom regard.cli import main\n"
        "try: main(['predict', '--help'])\nfinally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=900
    )
    assert "--n-best" in done.stdout


LONGEST = 100
COMMANDS = sorted(name for name in app if not name.startswith("-"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_short_description(command):
    """The glossary: one line of at most 100 characters for each option and argument."""
    arguments = app[command].assemble_argument_collection(parse_docstring=True)
    shown = [one for one in arguments.filter_by(show=True) if one.parse]
    assert shown
    for argument in shown:
        text = argument.parameter.help
        assert text, f"regard {command}: {argument.name} has no description"
        assert len(text) <= LONGEST, f"regard {command}: {argument.name}: {len(text)} characters"
        assert "\n" not in text
        assert text[0].isupper() or text.startswith("float32")
        assert text.endswith(".")


def test_every_command_has_a_short_summary():
    for command in COMMANDS:
        summary = inspect.cleandoc(app[command].help).splitlines()[0]
        assert 0 < len(summary) <= LONGEST, command


def test_every_command_belongs_to_one_group():
    named = [name for names in COMMAND_GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(COMMANDS) == set(named) == set(EXAMPLES)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_that_parse(command):
    assert EXAMPLES[command]
    for text, line in EXAMPLES[command].items():
        words = shlex.split(line)
        assert words[0] == command
        function, bound, unused = app.parse_args(words, exit_on_error=False, print_error=False)
        assert inspect.signature(function).bind(*bound.args, **bound.kwargs)
        assert unused == {}
        assert text[0].isupper()
        assert len(f" regard {line}") <= 80, "a help page has 80 columns"


def test_an_example_with_an_unknown_option_is_noticed():
    with pytest.raises(CycloptsError, match="--colour"):
        app.parse_args(["inspect", "spelling", "--colour"], exit_on_error=False, print_error=False)


def test_settings_in_examples_exist():
    for line in EXAMPLES["train"].values():
        words = shlex.split(line)
        overrides = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        for group, values in read_settings(None, overrides).items():
            known = {"model": TransformerSettings, "train": TrainSettings, "text": TextSettings}
            assert set(values) <= set(known[group].model_fields)


def test_help_pages_show_groups_and_examples(capsys):
    out, _ = regard(capsys, "--help")
    positions = [out.index(f"─ {title} ─") for title in COMMAND_GROUPS]
    assert positions == sorted(positions)
    out, _ = regard(capsys, "train", "--help")
    for title in ("Held-out pairs", "Reading", "Model and settings", "Length of training", "Run"):
        assert f"─ {title} ─" in out
    assert "─ Parameters ─" not in out
    assert "[default: False]" not in out
    assert "regard train words.xlsx --source English" in out


@pytest.mark.parametrize("options", [DecodingOptions, SearchOptions, OutputFormat])
def test_every_decoding_option_has_a_short_description(options):
    described = option_help(options)
    assert list(described) == option_names(options)
    for name, text in described.items():
        assert text.endswith("."), name
        assert len(text) <= LONGEST, name
        assert "\n" not in text, name


def test_command_line_and_python_share_names_and_defaults():
    arguments = app["predict"].assemble_argument_collection(parse_docstring=True)
    by_name = {argument.name: argument for argument in arguments}
    described = option_help(DecodingOptions)
    for field in fields(DecodingOptions):
        argument = by_name[f"--{field.name.replace('_', '-')}"]
        assert argument.field_info.default == field.default
        assert argument.parameter.help == described[field.name]
