"""The torch model of a bundle: saved atomically with all files of the bundle, verified on load."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.bundle.bundle import VERSION, Bundle, read
from regard.bundle.location import check_destination, sibling
from regard.bundle.manifest import (
    CARD,
    CONFIG,
    MANIFEST,
    README,
    SHARED,
    SOURCE,
    TARGET,
    TRAINING_SOURCES,
    WEIGHTS,
    BundleError,
    build_manifest,
    invalid_file,
    write_json,
)
from regard.bundle.model_card import write_model_card
from regard.bundle.weights_header import read_header
from regard.device import resolve_device
from regard.disk import fsync_path, use_default_mode
from regard.errors import RegardError, UnknownName
from regard.int8 import SCALE_SUFFIX, quantize_tensors
from regard.models import Model, build
from regard.models.meta_model import build_on_meta, build_shallow, repeat_layers
from regard.models.parts import Embedding, Output

DTYPES = {
    "F32": torch.float32,
    "F64": torch.float64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
INT8 = "I8"
Shapes = dict[str, tuple[int, ...]]


def save(folder: str | os.PathLike[str], bundle: Bundle) -> None:
    """Write a bundle atomically; an existing bundle stays until the new one is complete."""
    check_destination(folder)
    home = Path(os.path.realpath(folder))
    partial, old = sibling(home, "partial"), sibling(home, "old")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        _recover(home, partial, old)
        partial.mkdir()
        _write_files(partial, bundle)
        if home.exists():
            home.rename(old)
        partial.rename(home)
        fsync_path(home.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise BundleError(
            f"cannot write bundle {str(folder)!r}: {what}; fix the cause and try again"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not home.exists():
            old.rename(home)


def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Bundle:
    """Read a bundle and build its model, in eval mode; an error names the damaged file."""
    loaded = read(folder, str(resolve_device(device)))
    assert loaded.model is not None  # built here, so that a damaged file is reported at once
    return loaded


def load_model(bundle: Bundle) -> Model:
    """Build the model of a bundle with the weights in its folder, on its device."""
    home, path = bundle.folder, bundle.weights
    assert home
    assert path
    device, settings = resolve_device(bundle.device), bundle.settings
    quantised = _check_weights(bundle, home, path)  # before anything is allocated
    try:
        with torch.random.fork_rng(devices=[]):  # loading must not change the caller's random state
            model = build(settings, len(bundle.source), len(bundle.target))
        with safe_open(path, framework="pt") as file:
            for name, tensor in unique_parameters(model).items():
                weight = file.get_tensor(name)
                if name in quantised:
                    tensor.data = weight.float() * file.get_tensor(name + SCALE_SUFFIX)[:, None]
                else:
                    tensor.data = weight.clone()  # keeps the stored dtype
    except SafetensorError as error:
        raise invalid_file(path, f"it is not a valid safetensors file ({error})") from None
    return model.to(device).eval()


def _check_weights(bundle: Bundle, home: Path, path: Path) -> set[str]:
    """Raise unless the stored tensors are those of the model; returns the names of int8 ones.

    The model is built without memory for its tensors (on the device `meta`).
    """
    try:
        stored = read_header(path).tensors
    except RegardError as error:
        raise invalid_file(path, str(error)) from None
    settings = bundle.settings
    try:
        model = build_shallow(settings, len(bundle.source), len(bundle.target))
    except UnknownName as error:  # a user-defined part: copying the bundle would not help
        raise BundleError(f"cannot build the model of {str(home)!r}: {error}") from None
    except RegardError as error:
        raise invalid_file(home / CONFIG, str(error)) from None
    except (TypeError, ValueError, ArithmeticError, RuntimeError, MemoryError) as error:
        what = f"its settings describe no model ({type(error).__name__}: {error})"
        raise invalid_file(home / CONFIG, what) from error
    expected = repeat_layers(shapes(unique_parameters(model)), settings)
    matrices = repeat_layers(dict.fromkeys(quantizable(model)), settings)
    types = {name: tensor.dtype for name, tensor in stored.items()}
    quantised = {name for name in matrices if name in expected and types.get(name) == INT8}
    rows = {name + SCALE_SUFFIX: expected[name][:1] for name in quantised}
    mismatch = find_mismatch({**expected, **rows}, {n: t.shape for n, t in stored.items()})
    dtypes = {kind for name, kind in types.items() if name not in quantised}
    if mismatch or len(dtypes) != 1 or not dtypes <= set(DTYPES):
        found = ", ".join(sorted(set(types.values())))
        raise invalid_file(path, mismatch or f"its types are {found}")
    return quantised


def _recover(home: Path, partial: Path, old: Path) -> None:
    """Restore or remove what a killed save left behind."""
    if old.exists() and not home.exists():
        old.rename(home)
    for leftover in (partial, old):
        if leftover.exists():
            shutil.rmtree(leftover)


def _write_files(folder: Path, bundle: Bundle) -> None:
    """Write all files of a bundle, the manifest last."""
    source, target = bundle.source, bundle.target
    sizes = {"source": len(source), "target": len(target)}
    same = source is target or source.fingerprint == target.fingerprint
    shared = same and len(source) == len(target)
    _write_weights(folder, bundle)
    settings = bundle.settings.model_dump(mode="json")
    values = {"version": VERSION, "model": settings, "vocabulary": sizes, "shared": shared}
    write_json(folder / CONFIG, {**values, "template": bundle.template.to_json()})
    try:
        write_json(folder / CARD, bundle.card)
    except (TypeError, ValueError) as error:
        raise BundleError(
            f"the card of this bundle is not JSON: {error}; use strings, numbers and lists"
        ) from None
    text = write_model_card(bundle.card, settings)
    (folder / README).write_text(text, encoding="utf-8")
    source.save(folder / (SHARED if shared else SOURCE))
    if not shared:
        target.save(folder / TARGET)
    if bundle.training_sources is not None:
        bundle.training_sources.save(folder / TRAINING_SOURCES)
        use_default_mode(folder / TRAINING_SOURCES)
    write_json(folder / MANIFEST, build_manifest(folder))
    for path in (*folder.iterdir(), folder):
        fsync_path(path)


def _write_weights(folder: Path, bundle: Bundle) -> None:
    """Write the weights; raises if the model does not match its settings and tokenizers."""
    weights = unique_parameters(bundle.model)
    expected = build_on_meta(bundle.settings, len(bundle.source), len(bundle.target))
    mismatch = find_mismatch(shapes(unique_parameters(expected)), shapes(weights))
    dtypes = {tensor.dtype for tensor in weights.values()}
    if not mismatch and (len(dtypes) != 1 or not dtypes <= set(DTYPES.values())):
        found = ", ".join(sorted(map(str, dtypes)))
        mismatch = f"its weights must have one floating-point type, not {found}"
    if mismatch:
        raise BundleError(
            f"this model does not match its settings and tokenizers: {mismatch}; "
            "give the settings and tokenizers it was built with"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    if bundle.card.get("precision") == "int8":
        arrays = {name: tensor.float().numpy() for name, tensor in tensors.items()}
        arrays = quantize_tensors(arrays, quantizable(bundle.model))
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    save_file(tensors, folder / WEIGHTS)
    use_default_mode(folder / WEIGHTS)


def quantizable(model: Model) -> set[str]:
    """The names of the weights that int8 bundles quantise: linear layers and embeddings."""
    names: set[str] = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            names.add(f"{name}.weight")
        elif isinstance(module, Embedding | Output):
            names.add(f"{name}.table")
        elif isinstance(module, nn.RNNBase):
            inner = (part for part, _ in module.named_parameters(recurse=False))
            names |= {f"{name}.{part}" for part in inner if part.startswith("weight_")}
    return names


def unique_parameters(model: Model) -> dict[str, Tensor]:
    """Each parameter under its first name; tied and shared parameters appear once."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def find_mismatch(expected: Shapes, given: Shapes) -> str | None:
    """The first difference in names or shapes, in words."""
    for name in sorted({*expected, *given}):
        if name not in given:
            return f"tensor {name!r} is missing"
        if name not in expected:
            return f"tensor {name!r} belongs to another model"
        if expected[name] != given[name]:
            return f"tensor {name!r} has shape {given[name]}, not {expected[name]}"
    return None


def shapes(tensors: dict[str, Tensor]) -> Shapes:
    """The shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
