"""Commands around data and models: checks, cleaning, contents, archives, explorer, benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard import cli_options as options
from regard.commands.options import CleaningRules
from regard.model_location import find_model
from regard.registry import import_files

Probes = Annotated[
    list[str] | None,
    Parameter(help="A text that the film shows; repeat it (default: the model's examples)."),
]
FilmFile = Annotated[
    Path | None, Parameter(help="File to write (default: BUNDLE.film.safetensors, beside it).")
]
LessonNumber = Annotated[
    str | None, Parameter(help="Lesson: 1 to 10, or A for the appendix (default: list them).")
]


def inspect(
    bundle: options.Bundle, /, *, json: options.Json = False, import_: options.Imports = None
) -> None:
    """Show how a bundle was trained, its metrics, tokenizers, files and parameters."""
    with options.without_gc():
        from regard.commands.inspect import inspect as run

    import_files(import_ or [])
    run(find_model(bundle), as_json=json)


def explore(
    *bundles: options.Bundles,
    port: options.Port = None,
    host: options.Host = "127.0.0.1",
    no_browser: options.NoBrowser = False,
    import_: options.Imports = None,
) -> None:
    """Open the explorer, where every number of a model shows its arithmetic.

    The page is served from this machine, offline. Ctrl-C ends it.
    """
    with options.without_gc():
        from regard.explore.model_store import ModelStore
        from regard.explore.server import serve

    import_files(import_ or [])
    models = ModelStore.open([find_model(bundle, compared=True) for bundle in bundles])
    serve(models, host=host, port=port, browser=not no_browser)


def film(bundle: options.Bundle, /, *, probe: Probes = None, out: FilmFile = None) -> None:
    """Reduce the training film of a run to a few texts, in one small file beside the bundle.

    The explorer shows the film of a run from its snapshots (train.film). The reduced film has the
    attention weights and outputs of some texts at every snapshot, without the weights of the model.
    """
    with options.without_gc():
        from regard.commands.film import reduce_film

    print(reduce_film(bundle, probe or (), out))


def lesson(
    number: LessonNumber = None,
    /,
    *,
    port: options.Port = None,
    host: options.Host = "127.0.0.1",
    no_browser: options.NoBrowser = False,
) -> None:
    """Open an interactive lesson about attention in the explorer; without a number, list them.

    Each lesson takes about five minutes: guess, try it with live numbers, see, understand. The
    lessons use the included models and need no network. Ctrl-C ends the explorer.
    """
    with options.without_gc():
        from regard.explore.lessons import lesson_address, lesson_table

    if number is None:
        print(lesson_table())
        return
    page = lesson_address(number)
    with options.without_gc():
        from regard.explore.model_store import ModelStore
        from regard.explore.server import serve

    serve(ModelStore.open([]), host=host, port=port, browser=not no_browser, page=page)


def bench(
    *,
    device: options.Device = "auto",
    precision: options.BenchPrecision = None,
    causal: options.Causal = False,
    json: options.Json = False,
) -> None:
    """Time the attention backends on this machine and compare `auto` with the fastest.

    Each row is a score or bias on sequences of equal or different lengths, each column a backend in
    milliseconds. The last column compares `auto` with large matrix products and copies.
    """
    with options.without_gc():
        from regard.commands.bench import bench as run

    run(device=device, precision=precision, masked=causal, as_json=json)


def data(
    *files: options.Pairs,
    targets: options.Targets = None,
    held_out: options.HeldOutFiles = None,
    reading: options.PairReading = None,
    json: options.Json = False,
) -> None:
    """Report what would be trained on, and what looks wrong with it.

    Columns, lengths, scripts, duplicates, conflicting targets, overlap with held-out pairs and
    unusual lines, with examples. Bad lines are counted.
    """
    with options.without_gc():
        from regard.commands.data import describe_data
        from regard.text import Corpus

    arguments = options.reading_arguments(reading) | {"bad_lines": "skip"}
    corpus = Corpus(list(files), targets, **arguments)
    describe_data(corpus, Corpus(held_out, **arguments) if held_out else None, as_json=json)


def clean(
    file: options.Pairs,
    out: options.CleanFile,
    /,
    *,
    targets: options.Targets = None,
    exclude: options.Exclude = None,
    reading: options.PairReading = None,
    rules: options.Rules = None,
) -> None:
    """Write a filtered file of pairs, and a file of what was dropped.

    Drops bad lines, duplicates, broken characters and unusual length ratios; other rules are
    options. The dropped pairs and the reasons are in OUT.dropped.tsv.
    """
    with options.without_gc():
        from regard.commands.clean import clean as run
        from regard.commands.input_protection import CLEAN_FILES, check_not_input
        from regard.text import Corpus

    check_not_input(out, [file, *(targets or []), *(exclude or [])], CLEAN_FILES)
    arguments = options.reading_arguments(reading) | {"bad_lines": "skip"}
    excluded = Corpus(exclude, **arguments) if exclude else None
    run(Corpus(file, targets, **arguments), out, rules or CleaningRules(), excluded)


def pack(bundle: options.Bundle, archive: options.Archive, /) -> None:
    """Pack a model into one file to share.

    Every command and `regard.load` accept the archive. It has no code, and a bundle has none.
    """
    from regard.commands.pack import pack as run

    run(find_model(bundle), archive)


def quantize(
    bundle: options.Bundle,
    /,
    *,
    out: options.QuantizedFolder = None,
    held_out: options.QuantizeHeldOut = None,
    reading: options.PairReading = None,
    import_: options.Imports = None,
) -> None:
    """Write an int8 copy of a model, a quarter of its size.

    The loss of quality is measured on held-out pairs, those of the model's run by default, and
    written to the model card.
    """
    with options.without_gc():
        from regard.commands.quantize import format_quantization
        from regard.quantization import quantize as run
        from regard.text import Corpus

    import_files(import_ or [])
    pairs = Corpus(held_out, **options.reading_arguments(reading)) if held_out else None
    made = run(bundle, out, held_out=pairs).bundle
    print(format_quantization(made.card["quantization"], made.folder))


def export(
    bundle: options.Bundle,
    /,
    *,
    to: options.ExportFormat,
    out: options.ExportFolder = None,
    int8: options.Int8 = False,
    held_out: options.ExportHeldOut = None,
    reading: options.PairReading = None,
) -> None:
    """Export a model to another runtime: CTranslate2, ONNX or Hugging Face.

    ctranslate2: Transformers, in float32 or int8, for CTranslate2.

    onnx: every model, recurrent ones too: encoder.onnx, decoder.onnx (one cached step) and
    run_onnx.py, which searches with numpy and onnxruntime alone: `python run_onnx.py "a text"`.

    hf: a folder for transformers (AutoModelForSeq2SeqLM), where a class fits the settings:
    Blenderbot, mBART or BART (position = learned or sinusoidal, layer norms), Marian (the same,
    post-norm, sinusoidal) or T5 (norm = rms, biases = false, position = t5).

    The exported model is compared with the original on held-out texts: equal outputs, and logits
    or log-probabilities within 1e-4. If they differ, nothing is written. The measured difference
    is in card.json.
    """
    with options.without_gc():
        from regard.model_export import describe_export
        from regard.model_export import export as run
        from regard.text import Corpus

    pairs = Corpus(held_out, **options.reading_arguments(reading)) if held_out else None
    print(describe_export(run(bundle, to, out, int8=int8, held_out=pairs)))


def import_(
    folder: options.HuggingFaceFolder,
    out: options.ImportFolder,
    /,
    *,
    languages: options.Languages = None,
    download: options.Download = False,
    held_out: options.ImportHeldOut = None,
    reading: options.PairReading = None,
) -> None:
    """Import a model of Hugging Face.

    Reads Marian, BART, mBART, M2M100, NLLB, Pegasus, Blenderbot, FSMT, T5, mT5 and ByT5 without
    running code. Where transformers is installed, the imported model is compared with the original:
    equal outputs, and logits within 1e-4. If they differ, nothing is written. Every command also
    accepts hf:FOLDER as a model, which imports it into the cache.
    """
    with options.without_gc():
        from regard.model_import import describe_import, import_model
        from regard.text import Corpus

    pairs = Corpus(held_out, **options.reading_arguments(reading)) if held_out else None
    codes = options.language_codes(languages)
    print(f"importing {str(folder)!r}", file=sys.stderr)
    print(describe_import(import_model(folder, out, download=download, held_out=pairs, **codes)))


# Commands with their order in `regard --help`.
COMMANDS: dict[Callable[..., None], int] = {inspect: 6, explore: 7, lesson: 7, bench: 8}
COMMANDS |= {film: 19, data: 12, clean: 13, pack: 14, quantize: 16, export: 17, import_: 18}
