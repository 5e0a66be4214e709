"""Ways to make a bundle hostile under a manifest with the right checksums."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bundle_mutations import dump, join_weights, split_weights, write_bundle

Files = dict[str, bytes]
Change = Callable[[Files], None]
WEIGHTS, CONFIG, CARD, SOURCE = (
    "weights.safetensors",
    "config.json",
    "card.json",
    "source.tokenizer.json",
)


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    """Change a JSON file; the change may also return a new document."""

    def apply(files: Files) -> None:
        document = json.loads(files[name])
        changed = change(document)
        files[name] = dump(document if changed is None else changed)

    return apply


def put(name: str, *path: Any, value: Any) -> Change:
    """Set one value of a JSON file."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return edit(name, change)


def header(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Change the header of the weights."""

    def apply(files: Files) -> None:
        document, tensors = split_weights(files[WEIGHTS])
        change(document)
        files[WEIGHTS] = join_weights(document, tensors)

    return apply


def entry(**values: Any) -> Change:
    """Change the header's entry of the first tensor."""
    return header(lambda document: document[min(document)].update(values))


def raw(name: str, content: Callable[[bytes], bytes]) -> Change:
    """Change the bytes of a file."""

    def apply(files: Files) -> None:
        files[name] = content(files[name])

    return apply


def model(**settings: Any) -> Change:
    """Change settings of the model."""
    return edit(CONFIG, lambda document: document["model"].update(settings))


def card(**fields: Any) -> Change:
    """Change fields of the card."""
    return edit(CARD, lambda document: document.update(fields))


def tokenizer(**parts: Any) -> Change:
    """Change parts of the source tokenizer."""
    return edit(SOURCE, lambda document: document.update(parts))


def replace_by_link(path: Path) -> None:
    """A link to the same file elsewhere."""
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def replace_by_pipe(path: Path) -> None:
    """A pipe that nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def replace_by_socket(path: Path) -> None:
    """A socket, bound by a relative name because its length is limited."""
    path.unlink()
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def replace_by_folder(path: Path) -> None:
    """A folder."""
    path.unlink()
    path.mkdir()


def make(home: Path, files: Files, change: Change) -> Path:
    """Write the changed files as a bundle."""
    files = {name: data for name, data in files.items() if name != "manifest.json"}
    change(files)
    write_bundle(home, files)
    return home
