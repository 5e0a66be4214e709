"""The settings and tensors of a model as the C structures of the native engine."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.int8 import SCALE_SUFFIX
from regard.native.gate import CHOICES, head_dim, split_part
from regard.native.library import NativeError, SettingsStruct, TensorStruct
from regard.native.position_tables import PositionTables

SCORES = {"dot": 0, "scaled-dot": 0, "additive": 1, "general": 2}
EPS = {"layer": 1e-5, "rms": 1e-6}  # of norms, unless model.norm_eps is set


def settings_struct(
    settings: Mapping[str, Any], sizes: tuple[int, int], position: PositionTables, *, int8: bool
) -> SettingsStruct:
    """The settings of a model, complete (`with_defaults`), with its vocabulary sizes."""
    choice = {
        name: known.index(settings[name]) for name, known in CHOICES.items() if name in settings
    }
    heads = settings.get("heads") or 1
    score, _ = split_part(settings["score"])
    dim, eps = head_dim(settings), settings.get("norm_eps")
    scale = settings.get("embedding_scale")
    return SettingsStruct(
        family=int(settings["kind"] == "recurrent"),
        width=settings["width"],
        heads=heads,
        dim=dim,
        kv_heads=settings.get("kv_heads") or heads,
        encoder_layers=settings["encoder_layers"],
        decoder_layers=settings["decoder_layers"],
        ffn_width=settings.get("ffn_width") or 0,
        position=position.kind,
        position_limit=position.limit,
        rotated_dims=position.rotated_dims,
        neighbours=position.neighbours,
        window=settings.get("window") or 0,
        rms_norm=choice.get("norm", 0),
        pre_norm=1 - choice.get("norm_order", 0),
        activation=choice.get("activation", 0),
        biases=settings.get("biases", True),
        embedding_norm=settings.get("embedding_norm", False),
        output_bias=settings.get("output_bias", False),
        tied=choice["tie_embeddings"],
        source_vocabulary=sizes[0],
        target_vocabulary=sizes[1],
        cell=choice.get("cell", 0),
        attention=choice.get("attention", 0),
        score=SCORES.get(score, 0),
        int8=int8,
        score_scale=1 / math.sqrt(dim) if score == "scaled-dot" else 1.0,
        norm_eps=eps or EPS[settings.get("norm", "layer")],
        embedding_scale=math.sqrt(settings["width"]) if scale is None else scale,
    )


def flatten_score(tensors: dict[str, np.ndarray]) -> None:
    """Remove the axis of the single head from the parameters of a recurrent model's score.

    The matrix of the general score, qᵀ W k, becomes a linear layer of the queries.
    """
    for name in ("attention.attention.score.v", "attention.attention.score.weight"):
        if name in tensors:
            if tensors[name].shape[:1] != (1,):
                raise NativeError(f"tensor {name!r} has shape {tensors[name].shape}")
            tensors[name] = tensors[name][0].T


def tensor_structs(tensors: dict[str, np.ndarray]) -> ctypes.Array[TensorStruct]:
    """The tensors of a model, aligned and contiguous; int8 tensors with their scales."""
    quantised = {name for name, array in tensors.items() if array.dtype == np.int8}
    scales = {name + SCALE_SUFFIX for name in quantised}
    structs = (TensorStruct * (len(tensors) - len(scales & tensors.keys())))()
    for struct, name in zip(structs, (n for n in tensors if n not in scales), strict=True):
        kind = np.int8 if name in quantised else np.float32
        array = tensors[name] = np.require(tensors[name], kind, ["C", "A"])
        if array.ndim > 2:
            raise NativeError(f"tensor {name!r} has {array.ndim} axes; at most 2 are expected")
        struct.name, struct.data, struct.rank = name.encode(), array.ctypes.data, array.ndim
        struct.shape[: array.ndim] = array.shape
        if name in quantised:
            struct.scales = _scales(tensors, name, array).ctypes.data
    return structs


def _scales(tensors: dict[str, np.ndarray], name: str, array: np.ndarray) -> np.ndarray:
    """The scales of an int8 tensor, one per row."""
    found = tensors.get(name + SCALE_SUFFIX)
    if found is None or array.ndim != 2 or found.shape != array.shape[:1]:
        raise NativeError(f"int8 tensor {name!r} needs one scale per row in {SCALE_SUFFIX!r}")
    scales = tensors[name + SCALE_SUFFIX] = np.require(found, np.float32, ["C", "A"])
    return scales
