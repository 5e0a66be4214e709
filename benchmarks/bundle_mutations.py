"""Hostile bundles: random changes of a bundle's files under a manifest with the right checksums.

A mutation changes a value, a key or the structure of one JSON document (config, card, tokenizers,
manifest, or the header of a safetensors file), or bytes of the weights. Whoever loads the result
must get a working pipeline or a one-line `RegardError`, quickly and in little memory.

>>> originals = build_originals(folder)                   # tiny bundles of several kinds
>>> files, what = mutate(read_files(originals[0]), random.Random(7))
>>> write_bundle(folder / "bad", files)
>>> use_bundle(folder / "bad", "native")                   # "loaded", or the error
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import RegardError

Files = dict[str, bytes]
MANIFEST = "manifest.json"
LONGEST_MESSAGE = 1_000
RAW = "raw json: "  # a value that json.dumps cannot write: written without its quotes

TEXTS = ("", "x", "\n", "\0", "\ud800", "../../x", "a" * 100_000, "transformer", "learned", "bpe")
NUMBERS = (
    *(0, 1, -1, 2, 3, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1),
    *(1 << 63, 1 << 64, 10**30, -(1 << 63), 0.5, 1.5, -0.0, 1e-320, 1e38, 1e308),
)
STRANGE = (
    *(f"{RAW}{text}" for text in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000)),
    f"{RAW}{'[' * 500}{']' * 500}",
    f"{RAW}{'[' * 100_000}{']' * 100_000}",
    f'{RAW}{{"a": 1, "a": 2}}',
    *(None, True, False, [], {}, [[]], {"": {}}, [None], [0] * 10_000),
)
PARTS: tuple[Any, ...] = (
    *({"kind": "learned", "max_length": size} for size in (0, -1, 1, 1 << 40, 1.5, "8", None)),
    *({"kind": "t5", "max_distance": size} for size in (0, 1 << 20, 10**12, 1e9, [], 10**30)),
    *({"kind": "t5", "buckets": size} for size in (0, 1, 3, 10**9, "32")),
    *({"kind": "distance", "max_distance": size} for size in (0, 10**10, 1 << 62, None)),
    *({"kind": "shaw", "max_distance": size} for size in (0, 10**10, 2.0)),
    *({"kind": "rotary", "base": base} for base in (0, -1, "x", 1e308, 1e-320, [])),
    *({"kind": "rotary", "fraction": share} for share in (0, -1, 2, "0.5", 1e308, None)),
    *({"kind": "rotary", "scaling": "ntk", "factor": by} for by in (1e308, "2", 0, 1e200)),
    *({"kind": "sinusoidal", "base": base} for base in (0, -2, "x", 1e308)),
    *({"kind": "cosine", "scale": scale} for scale in ("x", None, 1e308, [], {})),
    *({"kind": "gaussian", "bandwidth": width} for width in (0, "x", 1e-320, [])),
    *({"kind": "entmax", "alpha": alpha} for alpha in (0, "x", None, 1.0000000001)),
    *({"kind": kind} for kind in (None, [], {}, "positive", "none", "alibi", "additive")),
)
PATTERNS = ("(a+)+$", "(a|a)*b", "(.*)*x", "[", "(?<=a*)b", ".*.*.*.*=", "", "\\", "(a{1,99}){99}")
TOKENIZER_PARTS: tuple[Any, ...] = (
    *({"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
      for one in PATTERNS),
    *({"type": "Replace", "pattern": {"Regex": one}, "content": "a"} for one in PATTERNS),
    {"type": "Replace", "pattern": {"String": ""}, "content": "aa"},
    {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}] * 9},
    {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 50_000}] * 99},
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="},
    {"type": "FixedLength", "length": 0},
    {"type": "Strip", "content": "a", "start": 1 << 60, "stop": 1 << 60},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]},
)  # fmt: skip


def build_originals(folder: Path) -> list[Path]:
    """Tiny valid bundles of several families, positions and tokenizers."""
    import torch

    from regard.bundle import Bundle, save
    from regard.config import RecurrentSettings, TransformerSettings
    from regard.models import build
    from regard.text import train_tokenizer

    texts = ["abandon a zebra", "a band and a drum", "zebras and bands abound"]
    small = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 8}
    kinds: dict[str, Any] = {
        "rotary": TransformerSettings(**small),
        "learned": TransformerSettings(
            **small, position={"kind": "learned", "max_length": 24}, tie_embeddings="all"
        ),
        "t5": TransformerSettings(**small, position="t5", norm="rms", biases=False),
        "gru": RecurrentSettings(width=8),
        "int8": TransformerSettings(**small, position="shaw"),
    }
    torch.manual_seed(3)
    for name, settings in kinds.items():
        kind = "bpe" if name == "learned" else "characters"
        source = train_tokenizer(kind, texts, **({"size": 280} if kind == "bpe" else {}))
        shared = settings.tie_embeddings == "all"
        target = source if shared else train_tokenizer("words", texts)
        model = build(settings, len(source), len(target)).eval()
        card = _example_card() | ({"precision": "int8"} if name == "int8" else {})
        save(folder / name, Bundle(model, source, target, settings, card))
    return [folder / name for name in kinds]


def _example_card() -> dict[str, Any]:
    """A card with every field that a command reads."""
    return {
        "task": "text",
        "metrics": {"chrf": 40.5, "sequence_accuracy": 12.0},
        "intervals": {"chrf": [39.0, 42.0], "sequence_accuracy": [10.0, 14.0]},
        "baselines": {"identity": {"chrf": 12.0}},
        "samples": [["a band", "a drum", "a zebra"]],
        "held_out": 10, "pairs": 100, "parameters": 1_000, "steps": 5, "of": 9, "seconds": 1.5,
        "longest": {"source": 12, "target": 12, "ratio": 2.0},
        "data": {"pairs.tsv": "00ff", "reading": "pairs.tsv: two columns"},
        "decisions": ["tokenizer: as requested"],
        "command": ["regard", "train", "pairs.tsv"],
        "versions": {"python": "3.12"},
        "settings": {"train": {"seed": 1, "select": "chrf"}},
        "title": "A small model", "example": "a band", "most_frequent_target": "a",
        "quality": [{"metric": "chrF", "value": 40.5, "unit": "", "on": "10 texts"}],
    }  # fmt: skip


def read_files(home: Path) -> Files:
    """The files of a bundle."""
    return {path.name: path.read_bytes() for path in sorted(home.iterdir())}


def write_bundle(home: Path, files: Files) -> None:
    """Write files as a bundle, with the right sizes and checksums in its manifest.

    A file `manifest.json` among them is written as it is.
    """
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != MANIFEST
    }
    manifest = json.dumps({"files": listed}).encode()
    for name, data in {MANIFEST: manifest, **files}.items():
        (home / name).write_bytes(data)


def mutate(files: Files, chance: random.Random) -> tuple[Files, str]:
    """The files with one random change, and what was changed."""
    changed = {name: data for name, data in files.items() if name != MANIFEST}
    name = chance.choice([name for name in files if name != "README.md"])
    if name == MANIFEST:
        document = json.loads(files[name])
        what = mutate_json(document, chance)
        return {**changed, name: dump(document)}, f"{name}: {what}"
    if not name.endswith(".safetensors"):
        document = json.loads(files[name])
        what = mutate_json(document, chance)
        return {**changed, name: dump(document)}, f"{name}: {what}"
    changed[name], what = _mutate_weights(files[name], chance)
    return changed, f"{name}: {what}"


def _mutate_weights(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A safetensors file with a changed header, cut, extended, or with strange numbers."""
    header, tensors = split_weights(data)
    kind = chance.random()
    if kind < 0.7:
        what = mutate_json(header, chance)
        return join_weights(header, tensors), f"header: {what}"
    if kind < 0.8:
        length = chance.choice([0, 1, len(data), 1 << 20, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
        return length.to_bytes(8, "little") + data[8:], f"header length {length}"
    if kind < 0.9:
        cut = chance.randrange(len(data))
        return data[:cut], f"cut at {cut}"
    number = chance.choice([b"\xff\xff\xff\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f"])
    spoilt = bytearray(tensors)
    for _ in range(chance.choice([1, 20])):
        at = chance.randrange(max(1, len(spoilt) // 4)) * 4
        spoilt[at : at + 4] = number
    return join_weights(header, bytes(spoilt)), f"numbers {number.hex()}"


def split_weights(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the tensors of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join_weights(header: Any, tensors: bytes) -> bytes:
    """A safetensors file."""
    text = dump(header)
    return len(text).to_bytes(8, "little") + text + tensors


def mutate_json(document: Any, chance: random.Random) -> str:
    """Change one place of a JSON document; returns what was changed."""
    places = list(_places(document))
    deep = [place for place in places if len(place[0]) <= chance.choice([1, 2, 3, 9])]
    path, parent, key = chance.choice(deep or places)
    where = "/".join(map(str, path))[:60]
    kind = chance.random()
    if kind < 0.1:
        del parent[key]
        return f"{where} removed"
    if kind < 0.15 and isinstance(parent, dict):
        parent[chance.choice(TEXTS)] = parent.pop(key)
        return f"{where} renamed"
    if kind < 0.25 and isinstance(parent[key], int | float):
        parent[key] = parent[key] * chance.choice([2, 10, 1_000, 10**6, 10**9, -1])
        return f"{where} = {parent[key]!r:.40}"
    new = _hostile_value(path, chance)
    parent[key] = new
    return f"{where} = {new!r:.60}"


def _hostile_value(path: tuple[Any, ...], chance: random.Random) -> Any:
    """A value that does not belong there, or one that only seems to."""
    pools: list[tuple[Any, ...]] = [TEXTS, NUMBERS, STRANGE]
    if path and path[-1] in ("position", "score", "normaliser"):
        pools = [PARTS, *pools]
    if path and path[0] in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        pools = [TOKENIZER_PARTS, TOKENIZER_PARTS, *pools]
    return chance.choice(chance.choice(pools))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Every place of a document: its path, its container and its key there."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield (*path, key), value, key
        if isinstance(inner, dict | list):
            yield from _places(inner, (*path, key))


def dump(document: Any) -> bytes:
    """JSON in UTF-8; strings that start with `RAW` are written without quotes."""
    text = json.dumps(document)
    for value in STRANGE:
        if isinstance(value, str):
            text = text.replace(json.dumps(value), value.removeprefix(RAW))
    return text.encode()


def use_bundle(home: Path, engine: str) -> str:
    """Load a bundle, run it and read its card as commands do; "loaded", or the error's message.

    Raises AssertionError if the message is not one short line, and whatever else is raised.
    """
    from regard.loading import load

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline = load(home, device="cpu", engine=engine)
            pipeline("a band and", max_length=6)
            pipeline.score("a band", "a")
            pipeline.bundle.source.pieces("a band")
            pipeline.bundle.training_sources  # noqa: B018 (reads the file)
    except RegardError as error:
        message = str(error)
    else:
        return "loaded"
    assert "\n" not in message, f"several lines: {message!r:.300}"
    assert len(message) <= LONGEST_MESSAGE, f"{len(message):,} characters"
    return message
