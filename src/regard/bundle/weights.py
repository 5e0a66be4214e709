"""The weights of a bundle: each parameter once, fitting the settings beside them."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard import config
from regard.bundle.manifest import CONFIG, WEIGHTS, BundleError, foreign
from regard.errors import RegardError
from regard.models import Model, build

TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
Shapes = dict[str, tuple[int, ...]]
Settings = config.TransformerSettings | config.RecurrentSettings


def write(folder: Path, model: Model, settings: Settings, sizes: tuple[int, int]) -> None:
    """The weights of a model, if it is the one that its settings describe."""
    weights = parameters(model)
    with torch.device("meta"):  # shapes without numbers
        plain = build(settings, *sizes)
    wrong = misfit(shapes(parameters(plain)), shapes(weights))
    types = {tensor.dtype for tensor in weights.values()}
    if wrong or len(types) != 1 or not types <= set(TYPES.values()):
        wrong = wrong or f"its weights must all have one floating type, not {', '.join(sorted(map(str, types)))}"
        raise BundleError(f"this model is not the one its settings and tokenisers describe: {wrong}; give those it has")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)


def read(home: Path, settings: Settings, sizes: tuple[int, int]) -> Model:
    """The model built anew, with the weights of the file."""
    try:
        with torch.random.fork_rng(devices=[]):  # loading must not change what a seeded program draws next
            model = build(settings, *sizes)
    except RegardError as error:
        raise foreign(home / CONFIG, str(error)) from None
    try:
        with safe_open(home / WEIGHTS, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            wrong = misfit(shapes(parameters(model)), {name: tuple(part.get_shape()) for name, part in slices.items()})
            types = {part.get_dtype() for part in slices.values()}
            if wrong or len(types) != 1 or not types <= set(TYPES):
                raise foreign(home / WEIGHTS, wrong or f"its types are {', '.join(sorted(types))}")
            for name, tensor in parameters(model).items():
                tensor.data = file.get_tensor(name).clone()  # of the file's type; what is computed keeps its own
    except SafetensorError as error:
        raise foreign(home / WEIGHTS, f"it is no whole safetensors file ({error})") from None
    return model


def parameters(model: Model) -> dict[str, Tensor]:
    """Each parameter under its first name; tied ones and those that layers share come only once."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def misfit(wanted: Shapes, given: Shapes) -> str | None:
    """The first difference of names or shapes, in words."""
    for name in sorted({*wanted, *given}):
        if name not in given:
            return f"tensor {name!r} is missing"
        if name not in wanted:
            return f"tensor {name!r} belongs to another model"
        if wanted[name] != given[name]:
            return f"tensor {name!r} has shape {given[name]}, not {wanted[name]}"
    return None


def shapes(tensors: dict[str, Tensor]) -> Shapes:
    """The shape of each."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
