"""Commands around a model: its contents, the explorer and the benchmark of backends."""

from __future__ import annotations

from collections.abc import Callable

from regard import cli_options as options
from regard.pretrained import resolve_model
from regard.user_parts import import_files


def inspect(
    bundle: options.Bundle, /, *, json: options.Json = False, import_: options.Imports = None
) -> None:
    """Show how a bundle was trained, its metrics, tokenizers, files and parameters."""
    with options.without_gc():
        from regard.commands.inspect import inspect as run

    import_files(import_ or [])
    run(resolve_model(bundle), as_json=json)


def explore(
    *bundles: options.Bundles,
    port: options.Port = None,
    host: options.Host = "127.0.0.1",
    no_browser: options.NoBrowser = False,
    import_: options.Imports = None,
) -> None:
    """Open the explorer, where every number of a model shows its arithmetic.

    `regard explore runs/demo/bundle` serves the page from this machine, offline. Ctrl-C ends it.
    """
    with options.without_gc():
        from regard.explore.model_store import ModelStore
        from regard.explore.server import serve

    import_files(import_ or [])
    models = ModelStore.open([resolve_model(bundle) for bundle in bundles])
    serve(models, host=host, port=port, browser=not no_browser)


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


def pack(bundle: options.Bundle, archive: options.Archive, /) -> None:
    """Pack a model into one file to share: `regard pack runs/demo model.zip`.

    Every command and `regard.load` accept the archive. It has no code, and a bundle has none.
    """
    from regard.commands.pack import pack as run

    run(resolve_model(bundle), archive)


# Commands with their order in `regard --help`.
COMMANDS: dict[Callable[..., None], int] = {inspect: 6, explore: 7, bench: 8, pack: 12}
