"""A bundle: one folder that carries all that a trained model needs, with a checksum of every file.

weights.safetensors      each parameter once; tied ones are tied again by building the model
config.json              format version, resolved settings of the model, vocabulary sizes
source.tokenizer.json    and target.tokenizer.json, or one shared.tokenizer.json
card.json                data, sizes, metrics, commands, versions: what people want to know
manifest.json            size and sha256 of the others

Loading runs no code from the folder: it reads JSON and safetensors, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard import config
from regard.errors import RegardError
from regard.models import Model, build
from regard.text.tokenizers import Tokenizer

VERSION = 1
WEIGHTS, CONFIG, CARD, MANIFEST = "weights.safetensors", "config.json", "card.json", "manifest.json"
SOURCE, TARGET, SHARED = "source.tokenizer.json", "target.tokenizer.json", "shared.tokenizer.json"
TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
Shapes = dict[str, tuple[int, ...]]
Settings = config.Transformer | config.Recurrent


class BundleError(RegardError):
    """A folder that is no whole bundle, or cannot become one."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model with its tokenisers, its settings and its card. With a shared vocabulary `source is target`."""

    model: Model
    source: Tokenizer
    target: Tokenizer
    settings: Settings
    card: dict[str, Any]


def save(folder: str | os.PathLike[str], bundle: Bundle) -> None:
    """Write a bundle whole or not at all; an older bundle of that name stays until the new one is on the disk."""
    check_place(folder)
    home = Path(os.path.realpath(folder))
    partial, old = _beside(home, "partial"), _beside(home, "old")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        _clear(home, partial, old)
        partial.mkdir()
        _fill(partial, bundle)
        if home.exists():
            home.rename(old)
        partial.rename(home)
        to_disk(home.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise BundleError(f"cannot write bundle {str(folder)!r}: {what}; mend that and save again") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not home.exists():
            old.rename(home)


def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Bundle:
    """The bundle in a folder, its model in eval mode. Every damage is one line that names the file."""
    home = _home(Path(folder))
    listed = _listed(home)
    settings, sizes, shared = _configured(home, listed)
    names = [SHARED] if shared else [SOURCE, TARGET]
    for name in (WEIGHTS, CARD, *names):
        _verify(home, name, listed)
    try:
        tokenizers = [Tokenizer.load(home / name) for name in names]
    except RegardError as error:
        raise BundleError(str(error)) from None
    source, target = tokenizers[0], tokenizers[-1]
    for name, tokenizer, size in zip((names[0], names[-1]), (source, target), sizes, strict=True):
        if len(tokenizer) != size:
            raise _foreign(home / name, f"it has {len(tokenizer):,} ids where {CONFIG} says {size:,}")
    card = _json(home / CARD)
    return Bundle(_model(home, settings, sizes).to(device).eval(), source, target, settings, card)


def check_place(folder: str | os.PathLike[str]) -> None:
    """Raise unless a bundle may be saved here: nothing is there, an empty folder, or a bundle and nothing else."""
    home = Path(os.path.realpath(folder))
    if not home.exists():
        return
    if not home.is_dir():
        raise BundleError(f"cannot save a bundle as {str(folder)!r}: it is a file; choose another name")
    own = {WEIGHTS, CONFIG, CARD, MANIFEST, SOURCE, TARGET, SHARED}
    strangers = sorted(path.name for path in home.iterdir() if path.name not in own)
    if strangers:
        raise BundleError(
            f"saving a bundle as {str(folder)!r} would remove {strangers[0]!r}, which is no part of a bundle; "
            f"move it away or choose another folder"
        )


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk and not only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(home: Path, role: str) -> Path:
    """Where a new bundle grows, or an old one waits; hidden, on the same disk, so that a rename is enough."""
    return home.with_name(f".{home.name}.{role}")


def _clear(home: Path, partial: Path, old: Path) -> None:
    """Put right what a killed save left behind."""
    if old.exists() and not home.exists():
        old.rename(home)
    for orphan in (partial, old):
        if orphan.exists():
            shutil.rmtree(orphan)


def _home(folder: Path) -> Path:
    """The folder; or the one it was just moved to, should a save have been killed between its two renames."""
    if folder.is_dir():
        return folder
    old = _beside(Path(os.path.realpath(folder)), "old")
    if old.is_dir() and not folder.exists():
        return old
    if folder.exists():
        raise BundleError(f"{str(folder)!r} is a file, not a bundle; give the folder that `regard train` wrote")
    raise BundleError(f"there is no bundle {str(folder)!r}; give the folder that `regard train` wrote")


def _fill(folder: Path, bundle: Bundle) -> None:
    """All files of a bundle, the manifest last."""
    shared = bundle.source is bundle.target or bundle.source.fingerprint == bundle.target.fingerprint
    sizes = {"source": len(bundle.source), "target": len(bundle.target)}
    weights = _once(bundle.model)
    with torch.device("meta"):  # shapes without numbers
        plain = build(bundle.settings, **sizes)
    wrong = _misfit(_shapes(_once(plain)), _shapes(weights))
    types = {tensor.dtype for tensor in weights.values()}
    if wrong or len(types) != 1 or not types <= set(TYPES.values()):
        wrong = wrong or f"its weights must all have one floating type, not {', '.join(sorted(map(str, types)))}"
        raise BundleError(f"this model is not the one its settings and tokenisers describe: {wrong}; give those it has")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
    settings = bundle.settings.model_dump(mode="json")
    _write(folder / CONFIG, {"version": VERSION, "model": settings, "vocabulary": sizes, "shared": shared})
    try:
        _write(folder / CARD, bundle.card)
    except (TypeError, ValueError) as error:
        raise BundleError(f"the card of this bundle is no JSON: {error}; give strings, numbers and lists") from None
    bundle.source.save(folder / (SHARED if shared else SOURCE))
    if not shared:
        bundle.target.save(folder / TARGET)
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())}
    _write(folder / MANIFEST, {"files": files})
    for path in (*folder.iterdir(), folder):
        to_disk(path)


def _once(model: Model) -> dict[str, Tensor]:
    """Each parameter under its first name; tied ones and those that layers share come only once."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def _shapes(tensors: dict[str, Tensor]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _misfit(wanted: Shapes, given: Shapes) -> str | None:
    """The first difference of names or shapes, in words."""
    for name in sorted({*wanted, *given}):
        if name not in given:
            return f"tensor {name!r} is missing"
        if name not in wanted:
            return f"tensor {name!r} belongs to another model"
        if wanted[name] != given[name]:
            return f"tensor {name!r} has shape {given[name]}, not {wanted[name]}"
    return None


def _model(home: Path, settings: Settings, sizes: tuple[int, int]) -> Model:
    """The model built anew, with the weights of the file."""
    try:
        with torch.random.fork_rng(devices=[]):  # loading must not change what a seeded program draws next
            model = build(settings, *sizes)
    except RegardError as error:
        raise _foreign(home / CONFIG, str(error)) from None
    try:
        with safe_open(home / WEIGHTS, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            wrong = _misfit(_shapes(_once(model)), {name: tuple(part.get_shape()) for name, part in slices.items()})
            types = {part.get_dtype() for part in slices.values()}
            if wrong or len(types) != 1 or not types <= set(TYPES):
                raise _foreign(home / WEIGHTS, wrong or f"its types are {', '.join(sorted(types))}")
            for name, tensor in _once(model).items():
                tensor.data = file.get_tensor(name).clone()  # of the file's type; what is computed keeps its own
    except SafetensorError as error:
        raise _foreign(home / WEIGHTS, f"it is no whole safetensors file ({error})") from None
    return model


def _configured(home: Path, listed: dict[str, Any]) -> tuple[Settings, tuple[int, int], bool]:
    """Settings, vocabulary sizes and whether they are one vocabulary, of a version that is understood."""
    _verify(home, CONFIG, listed)
    values = _json(home / CONFIG)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BundleError(
            f"{str(home / CONFIG)!r} is of format {version}, newer than the {VERSION} known here; "
            "upgrade with pip install -U regard"
        )
    try:
        if version != VERSION:
            raise RegardError(f"its version is {version!r}, not {VERSION}")
        settings = config.parse(config.Model, values["model"], "model")
        sizes = values["vocabulary"]["source"], values["vocabulary"]["target"]
        if not all(isinstance(size, int) and 0 < size < 1 << 31 for size in sizes):
            raise RegardError(f"its vocabulary sizes are {sizes}")
        return settings, sizes, bool(values["shared"])
    except (RegardError, KeyError, TypeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise _foreign(home / CONFIG, what) from None


def _listed(home: Path) -> dict[str, Any]:
    """What the manifest says of each file."""
    if not (home / MANIFEST).is_file():
        raise BundleError(f"{str(home)!r} is no bundle: it has no {MANIFEST}; give the folder `regard train` wrote")
    files = _json(home / MANIFEST).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise _foreign(home / MANIFEST, "it lists no files")
    return files


def _verify(home: Path, name: str, listed: dict[str, Any]) -> None:
    """Raise unless the file is the one that was saved."""
    path, entry = home / name, listed.get(name)
    if entry is None:
        raise _foreign(home / MANIFEST, f"it does not list {name!r}")
    try:
        size, found = path.stat().st_size, _sha256(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if size != entry.get("bytes"):
        raise BundleError(f"{str(path)!r} has {size} bytes instead of {entry.get('bytes')}; copy the bundle again")
    if found != entry.get("sha256"):
        raise BundleError(f"{str(path)!r} was altered: its sha256 differs; copy the bundle again")


def _unreadable(path: Path, error: OSError) -> BundleError:
    return BundleError(f"cannot read {str(path)!r}: {error.strerror}; copy the bundle again")


def _foreign(path: Path, why: str) -> BundleError:
    return BundleError(f"{str(path)!r} does not belong in this bundle: {why}; copy the bundle again")


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, RecursionError):
        raise _foreign(path, "it is no whole JSON") from None
    if not isinstance(values, dict):
        raise _foreign(path, "it holds no names with values")
    return values


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
