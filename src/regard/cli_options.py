"""Options and arguments of the command line: type, help and group of each."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard import cli_groups as groups
from regard.commands.options import CleaningRules, OutputFormat
from regard.decoding_options import DecodingOptions, SearchOptions

BUNDLE = "Folder of `regard train`, .zip of `regard pack`, hf:FOLDER or an included model's name."
Bundle = Annotated[Path, Parameter(help=BUNDLE)]
Archive = Annotated[Path, Parameter(help="File to write; it must be named .zip.")]
Pairs = Annotated[
    Path,
    Parameter(help="Files of pairs: TSV, CSV, JSON lines, Excel, OpenDocument, Parquet or Arrow."),
]
Targets = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.FILES,
        help="Files of targets, parallel to FILES, line by line.",
        consume_multiple=True,
    ),
]


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
    """Source column: its name, or its number from 1; 1+3 appends a column of tags."""

    target: str | None = None
    """Target column: its name, or its number from 1."""


@dataclass(frozen=True)
class ReadingOptions(PairOptions):
    """How files of pairs are read, and what happens to bad lines."""

    bad_lines: str = "stop"
    """Bad input lines: stop with an error, or skip and report them."""


TableReading = Annotated[InputOptions | None, Parameter(name="*", group=groups.READING)]
PairReading = Annotated[PairOptions | None, Parameter(name="*", group=groups.READING)]
Reading = Annotated[ReadingOptions | None, Parameter(name="*", group=groups.READING)]


@dataclass(frozen=True)
class LanguageOptions:
    """The languages of a multilingual model."""

    source_language: str | None = None
    """Code of the source language, for a multilingual model."""
    target_language: str | None = None
    """Code of the target language, for a multilingual model."""


Languages = Annotated[LanguageOptions | None, Parameter(name="*", group=groups.LANGUAGES)]


def language_codes(languages: LanguageOptions | None) -> dict[str, str | None]:
    """The options as settings, or as keyword arguments of a pipeline."""
    return asdict(languages or LanguageOptions())


def reading_arguments(reading: PairOptions | None) -> dict[str, Any]:
    """The options as keyword arguments of `Corpus`."""
    return asdict(reading or ReadingOptions())


def show_notes(notes: Iterable[str]) -> None:
    """Print guesses about the input that the user should check."""
    for note in notes:
        print(note, file=sys.stderr)


Device = Annotated[str, Parameter(group=groups.HARDWARE, help="Device: auto, cpu or cuda.")]
Engine = Annotated[
    str,
    Parameter(
        group=groups.HARDWARE, help="Engine: auto, native (C++ on a CPU), torch or ctranslate2."
    ),
]
Precision = Annotated[
    str | None,
    Parameter(
        group=groups.HARDWARE,
        help="Precision of search: float32, bfloat16 (GPU) or int8 (default: the bundle's).",
    ),
]
Json = Annotated[
    bool, Parameter(group=groups.FORMAT, help="Print one JSON object instead of tables.")
]
Imports = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.MODEL,
        name="--import",
        help="Python file that registers user-defined parts (repeatable).",
    ),
]
HeldOutFiles = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.HELD_OUT,
        help="Files of held-out pairs to compare with.",
        consume_multiple=True,
    ),
]
QuantizedFolder = Annotated[
    Path | None,
    Parameter(
        group=groups.FILES, help="Folder to write (default: the name of the bundle with -int8)."
    ),
]
QuantizeHeldOut = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.HELD_OUT,
        help="Files of held-out pairs (default: the held-out set of the run).",
        consume_multiple=True,
    ),
]
ExportFormat = Annotated[str, Parameter(help="Format to export to: ctranslate2, onnx or hf.")]
ExportFolder = Annotated[
    Path | None,
    Parameter(
        group=groups.FILES, help="Folder to write (default: the name of the bundle and the format)."
    ),
]
Int8 = Annotated[bool, Parameter(name="--int8", help="Quantise to int8 (ctranslate2 only).")]
ExportHeldOut = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.HELD_OUT,
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
    Parameter(
        group=groups.HELD_OUT,
        help="Files of pairs whose sources verify the import, too.",
        consume_multiple=True,
    ),
]
Rules = Annotated[CleaningRules | None, Parameter(name="*", group=groups.RULES)]
CleanFile = Annotated[Path, Parameter(help="File to write: .tsv, .csv, .jsonl or .xlsx.")]
Exclude = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.FILES,
        help="Files of pairs whose sources are dropped (held-out pairs).",
        consume_multiple=True,
    ),
]
RunOrBundle = Annotated[Path, Parameter(help="Folder of a run or of a bundle.")]
Runs = Annotated[Path, Parameter(help="Folders of runs; the first is compared with the others.")]
ReportOutput = Annotated[
    Path | None,
    Parameter(
        group=groups.FILES, help="HTML file (default: report.html in the folder of the run)."
    ),
]
Texts = Annotated[
    str, Parameter(help="Texts to answer. Without texts and --input, read standard input.")
]
InputFiles = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.FILES,
        help="Files of lines, plain or compressed; - is standard input.",
        consume_multiple=True,
    ),
]
Column = Annotated[
    str | None,
    Parameter(
        group=groups.FILES,
        help="Column of the source in table files: its name, or its number from 1.",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.FILES,
        help="Another bundle; the probabilities of all are averaged (repeatable).",
    ),
]
ResumableOutput = Annotated[
    Path | None,
    Parameter(
        group=groups.FILES,
        help="Output file, created on completion. Run the same command again to resume.",
    ),
]
Restart = Annotated[
    bool,
    Parameter(
        group=groups.FILES, help="Discard the partial --output of an earlier run and start over."
    ),
]
Long = Annotated[
    str,
    Parameter(
        group=groups.FILES, help="Sources longer than any in training: warn, refuse or allow."
    ),
]
MaxSourceLength = Annotated[
    int | None,
    Parameter(
        group=groups.FILES,
        help="Maximum source tokens (default: 10 × the longest in training, ≥ 1,000; 0: none).",
    ),
]
Format = Annotated[OutputFormat | None, Parameter(name="*", group=groups.FORMAT)]
Decoding = Annotated[DecodingOptions | None, Parameter(name="*", group=groups.DECODING)]
SearchDecoding = Annotated[SearchOptions | None, Parameter(name="*", group=groups.DECODING)]
TableOutput = Annotated[
    Path | None,
    Parameter(
        group=groups.FILES,
        help="TSV, Parquet or Arrow file of source, prediction, reference and edits.",
    ),
]
PairArguments = Annotated[
    list[tuple[str, str]] | None,
    Parameter(group=groups.FILES, help="A source and a target, instead of files (repeatable)."),
]
JsonLines = Annotated[
    bool,
    Parameter(group=groups.FORMAT, help="Write JSON lines with the log-probability of each token."),
]
Bundles = Annotated[
    Path,
    Parameter(help="Bundles: folders, hf:FOLDER or included models (default: all included)."),
]
Port = Annotated[
    int | None,
    Parameter(group=groups.SERVER, help="Port (default: 7341, or a free one if it is taken)."),
]
Host = Annotated[
    str,
    Parameter(
        group=groups.SERVER, help="Address. Any other than 127.0.0.1 needs the printed token."
    ),
]
NoBrowser = Annotated[bool, Parameter(group=groups.SERVER, help="Serve without opening a browser.")]
BenchPrecision = Annotated[
    str | None,
    Parameter(
        group=groups.HARDWARE,
        help="float32, bfloat16 or float16 (default: float32 on a CPU, else bfloat16).",
    ),
]
Causal = Annotated[bool, Parameter(help="Use a causal mask.")]


@contextmanager
def without_gc() -> Iterator[None]:
    """Import without garbage collection, which would search a million new objects in vain."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
