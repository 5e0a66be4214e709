"""Options and arguments of the command line: type, help and group of each."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from regard.commands.options import CleaningRules, OutputFormat
from regard.decoding_options import DecodingOptions, SearchOptions

FORMAT = Group.create_ordered("Output format", default_parameter=Parameter(show_default=False))
DECODING = Group.create_ordered(
    "Decoding",
    default_parameter=Parameter(show_default=lambda value: None if value in ("", ()) else value),
)
BUNDLE = "Folder of `regard train`, .zip of `regard pack`, hf:FOLDER, spelling, spelling-recurrent."
Bundle = Annotated[Path, Parameter(help=BUNDLE)]
Archive = Annotated[Path, Parameter(help="File to write; it must be named .zip.")]
Pairs = Annotated[
    Path,
    Parameter(help="Files of pairs: TSV, CSV, JSON lines, Excel, OpenDocument, Parquet or Arrow."),
]
Targets = Annotated[
    list[Path] | None,
    Parameter(help="Files of targets, parallel to FILES, line by line.", consume_multiple=True),
]
READING = Group.create_ordered("Reading", default_parameter=Parameter(show_default=False))


@dataclass(frozen=True)
class InputOptions:
    """How input files are read; everything that is not given is detected."""

    header: Annotated[bool | None, Parameter(negative="--no-header")] = None
    """The first row is a header, or is not (default: by its content)."""

    encoding: str | None = None
    """Encoding of the files, such as utf-16 or cp1252 (default: detected)."""

    sheet: str | None = None
    """Sheet of a workbook (default: the only one that is not empty)."""


@dataclass(frozen=True)
class PairOptions(InputOptions):
    """How files of pairs are read; everything that is not given is detected."""

    source: str | None = None
    """Source column: its name, or its number from 1."""

    target: str | None = None
    """Target column: its name, or its number from 1."""


@dataclass(frozen=True)
class ReadingOptions(PairOptions):
    """How files of pairs are read, and what happens to bad lines."""

    bad_lines: str = "stop"
    """Bad input lines: stop with an error, or skip and report them."""


PairReading = Annotated[PairOptions | None, Parameter(name="*", group=READING)]
Reading = Annotated[ReadingOptions | None, Parameter(name="*", group=READING)]


@dataclass(frozen=True)
class LanguageOptions:
    """The languages of a multilingual model."""

    source_language: str | None = None
    """Code of the source language, for a multilingual model."""
    target_language: str | None = None
    """Code of the target language, for a multilingual model."""


Languages = Annotated[LanguageOptions | None, Parameter(name="*")]


def language_codes(languages: LanguageOptions | None) -> dict[str, str | None]:
    """The options as settings, or as keyword arguments of a pipeline."""
    return asdict(languages or LanguageOptions())


TableReading = Annotated[InputOptions | None, Parameter(name="*", group=READING)]


def reading_arguments(reading: PairOptions | None) -> dict[str, Any]:
    """The options as keyword arguments of `Corpus`."""
    return asdict(reading or ReadingOptions())


def show_notes(notes: Iterable[str]) -> None:
    """Print guesses about the input that the user should check."""
    for note in notes:
        print(note, file=sys.stderr)


Family = Annotated[str, Parameter(help="Model family: transformer or recurrent.")]
Device = Annotated[str, Parameter(help="Device: auto, cpu or cuda.")]
Engine = Annotated[
    str, Parameter(help="Engine: auto, native (C++ on a CPU), torch or ctranslate2.")
]
Precision = Annotated[
    str | None,
    Parameter(help="Precision of search: float32, bfloat16 (GPU) or int8 (default: the bundle's)."),
]
Json = Annotated[bool, Parameter(help="Print one JSON object instead of tables.")]
Imports = Annotated[
    list[Path] | None,
    Parameter(name="--import", help="Python file that registers user-defined parts (repeatable)."),
]
HeldOut = Annotated[
    list[Path] | None,
    Parameter(
        help="Files of held-out pairs (default: split from FILES by a fixed rule).",
        consume_multiple=True,
    ),
]
HeldOutFiles = Annotated[
    list[Path] | None,
    Parameter(help="Files of held-out pairs to compare with.", consume_multiple=True),
]
QuantizedFolder = Annotated[
    Path | None, Parameter(help="Folder to write (default: the name of the bundle with -int8).")
]
QuantizeHeldOut = Annotated[
    list[Path] | None,
    Parameter(
        help="Files of held-out pairs (default: the held-out set of the run).",
        consume_multiple=True,
    ),
]
ExportFormat = Annotated[str, Parameter(help="Format to export to: ctranslate2, onnx or hf.")]
ExportFolder = Annotated[
    Path | None, Parameter(help="Folder to write (default: the name of the bundle and the format).")
]
Int8 = Annotated[bool, Parameter(name="--int8", help="Quantise to int8 (ctranslate2 only).")]
ExportHeldOut = Annotated[
    list[Path] | None,
    Parameter(
        help="Files of pairs whose sources verify the export (default: the run's held-out set).",
        consume_multiple=True,
    ),
]
HuggingFaceFolder = Annotated[
    Path, Parameter(help="Hugging Face folder: config.json, model.safetensors, tokenizer files.")
]
ImportFolder = Annotated[Path, Parameter(help="Folder of the bundle to write.")]
Download = Annotated[
    bool, Parameter(help="FOLDER is a name on the Hugging Face Hub; download its files.")
]
ImportHeldOut = Annotated[
    list[Path] | None,
    Parameter(help="Files of pairs whose sources verify the import, too.", consume_multiple=True),
]
RULES = Group.create_ordered("Rules")
Rules = Annotated[CleaningRules | None, Parameter(name="*", group=RULES)]
CleanFile = Annotated[Path, Parameter(help="File to write: .tsv, .csv, .jsonl or .xlsx.")]
Exclude = Annotated[
    list[Path] | None,
    Parameter(
        help="Files of pairs whose sources are dropped (held-out pairs).", consume_multiple=True
    ),
]
HeldOutTargets = Annotated[
    list[Path] | None,
    Parameter(help="Files of targets, parallel to --held-out.", consume_multiple=True),
]
RunFolder = Annotated[
    Path | None, Parameter(help="Folder of the run (default: runs/NAME of the first file).")
]
OptionalFamily = Annotated[
    str | None, Parameter(help="Model family: transformer (default) or recurrent.")
]
Size = Annotated[str, Parameter(help="Model size: auto, tiny, small, base, big or student.")]
StudentFolder = Annotated[
    Path | None, Parameter(help="Folder of the run (default: runs/NAME-student).")
]
StudentSize = Annotated[
    str | None,
    Parameter(help="Model size (default: student, with the widths and parts of the teacher)."),
]
OriginalPairs = Annotated[
    bool, Parameter(help="Train on the original pairs, too, not only on the teacher's outputs.")
]
Minutes = Annotated[
    float | None, Parameter(help="Training time in minutes; the schedule is fitted to it.")
]
Steps = Annotated[int | None, Parameter(help="Number of updates to train for.")]
Epochs = Annotated[float | None, Parameter(help="Number of passes over the training data.")]
Config = Annotated[
    Path | None, Parameter(help="TOML file with [model], [text] and [train] settings.")
]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", help="Any setting, such as model.width=128 (repeatable)."),
]
Tensorboard = Annotated[bool, Parameter(help="Also write TensorBoard event files.")]
From = Annotated[
    Path | None,
    Parameter(
        name="--from",
        help="Fine-tune this bundle or hf:FOLDER: its weights, tokenizers and model settings.",
    ),
]
GivenTokenizer = Annotated[
    Path | None, Parameter(help="Train with this tokenizer.json (or its folder) on both sides.")
]
Freeze = Annotated[
    list[str] | None,
    Parameter(help="Parameters to keep fixed, such as encoder.* (repeatable)."),
]
RunOrBundle = Annotated[Path, Parameter(help="Folder of a run or of a bundle.")]
Runs = Annotated[Path, Parameter(help="Folders of runs; the first is compared with the others.")]
ReportOutput = Annotated[
    Path | None, Parameter(help="HTML file (default: report.html in the folder of the run).")
]
SweepFile = Annotated[Path, Parameter(help="TOML file: data, [fixed], [grid] or [random], seeds.")]
Seeds = Annotated[
    int | None, Parameter(help="Train with this many seeds; prints mean ± standard deviation.")
]
WriteEnsemble = Annotated[
    bool, Parameter(name="--ensemble", help="With --seeds: also write the models as an ensemble.")
]
HelpSettings = Annotated[bool, Parameter(help="Show all settings with their defaults and exit.")]
Extend = Annotated[
    bool,
    Parameter(help="Continue a finished or interrupted run with more minutes, steps or epochs."),
]
RestartRun = Annotated[bool, Parameter(help="Delete the earlier run in --out and start over.")]
Texts = Annotated[
    str, Parameter(help="Texts to answer. Without texts and --input, read standard input.")
]
InputFiles = Annotated[
    list[Path] | None,
    Parameter(
        help="Files of lines, plain or compressed; - is standard input.", consume_multiple=True
    ),
]
Column = Annotated[
    str | None,
    Parameter(help="Column of the source in table files: its name, or its number from 1."),
]
Ensemble = Annotated[
    list[Path] | None,
    Parameter(help="Another bundle; the probabilities of all are averaged (repeatable)."),
]
ResumableOutput = Annotated[
    Path | None,
    Parameter(help="Output file, created on completion. Run the same command again to resume."),
]
Restart = Annotated[
    bool, Parameter(help="Discard the partial --output of an earlier run and start over.")
]
Long = Annotated[str, Parameter(help="Sources longer than any in training: warn, refuse or allow.")]
MaxSourceLength = Annotated[
    int | None,
    Parameter(
        help="Maximum source tokens (default: 10 × the longest in training, ≥ 1,000; 0: none)."
    ),
]
Format = Annotated[OutputFormat | None, Parameter(name="*", group=FORMAT)]
Decoding = Annotated[DecodingOptions | None, Parameter(name="*", group=DECODING)]
SearchDecoding = Annotated[SearchOptions | None, Parameter(name="*", group=DECODING)]
TableOutput = Annotated[
    Path | None,
    Parameter(help="TSV, Parquet or Arrow file of source, prediction, reference and edits."),
]
PairArguments = Annotated[
    list[tuple[str, str]] | None,
    Parameter(help="A source and a target, instead of files (repeatable)."),
]
JsonLines = Annotated[
    bool, Parameter(help="Write JSON lines with the log-probability of each token.")
]
Bundles = Annotated[
    Path, Parameter(help="Folders written by `regard train` (default: the included models).")
]
Port = Annotated[int | None, Parameter(help="Port (default: 7341, or a free one if it is taken).")]
Host = Annotated[str, Parameter(help="Address. Any other than 127.0.0.1 needs the printed token.")]
NoBrowser = Annotated[bool, Parameter(help="Serve without opening a browser.")]
BenchPrecision = Annotated[
    str | None,
    Parameter(help="float32, bfloat16 or float16 (default: float32 on a CPU, else bfloat16)."),
]
Causal = Annotated[bool, Parameter(help="Use a causal mask.")]
DemoMinutes = Annotated[float, Parameter(help="Training time in minutes.")]
DemoFolder = Annotated[Path, Parameter(help="Folder of the run.")]


@contextmanager
def without_gc() -> Iterator[None]:
    """Import without garbage collection, which would search a million new objects in vain."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
