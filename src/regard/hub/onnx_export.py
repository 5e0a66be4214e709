"""Write a model as two ONNX graphs, an encoder and a decoder step, with a runner in numpy.

The encoder reads (ids, lengths) and returns what the decoder needs of the source (`memory.*`, and
for recurrent models the first hidden state, `past.*`). The decoder step reads tokens, lengths,
memory and past, and returns logits and the new past (`present.*`). Every array has one row per
hypothesis, so that a beam search reorders the rows of the past. Batch, source and past lengths are
dynamic.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.bundle.manifest import write_json
from regard.errors import RegardError
from regard.hub.dense_recurrent import DenseRecurrentEncoder, DenseRecurrentStep
from regard.hub.dense_transformer import DenseDecoderStep, DenseEncoder
from regard.models.families import unknown_part
from regard.models.recurrent import Recurrent

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
RUNNER = "run_onnx.py"
LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
SINGLE_FILE = 1 << 30  # bytes of weights up to which a graph holds them; ONNX allows twice that
LOGGERS = ("torch.onnx", "torch.__trace", "onnxscript", "onnx_ir")


def require_onnx() -> None:
    """Raise unless the libraries for the export and its verification are installed."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise RegardError(
            f'{missing[0]} is not installed; install it with pip install "regard[onnx]"'
        )


def cannot_trace(model: Any) -> str | None:
    """Why a model cannot be traced, by the name of its module; None if it can."""
    if type(model) is Recurrent:
        return None
    reason = unknown_part(model)
    return reason and reason.replace("it runs the Transformer family", "it has no such family")


@dataclass(frozen=True)
class TracedModel:
    """The two modules of a model, with the names of what passes between them."""

    encoder: nn.Module
    step: nn.Module
    memory: list[str]
    past: list[str]
    first: int  # how many of `past` the encoder returns
    memory_axes: list[dict[int, str]]
    past_axes: list[dict[int, str]]

    @classmethod
    def of(cls, model: Any) -> TracedModel:
        """The modules of a Transformer or of a recurrent model."""
        if type(model) is Recurrent:
            return cls._recurrent(model)
        names = [f"{part}.{layer}" for layer in range(len(model.decoder)) for part in PARTS]
        return cls(
            DenseEncoder(model),
            DenseDecoderStep(model),
            [f"memory.{name}" for name in names],
            [f"past.{name}" for name in names],
            0,
            [{0: "batch", 2: "source"} for _ in names],
            [{0: "batch", 2: "past"} for _ in names],
        )

    @classmethod
    def _recurrent(cls, model: Any) -> TracedModel:
        past = ["past.hidden", "past.cell"][: 2 if model.settings.cell == "lstm" else 1]
        if model.attention is None:
            memory, axes = ["memory.summary"], [{0: "batch"}]
        else:
            memory = [f"memory.{part}" for part in PARTS]
            axes = [{0: "batch", 2: "source"} for _ in memory]
        modules = DenseRecurrentEncoder(model), DenseRecurrentStep(model)
        return cls(*modules, memory, past, len(past), axes, [{0: "batch"} for _ in past])


PARTS = ("keys", "values")


def write_onnx(bundle: Bundle, folder: Path, options: dict[str, Any]) -> None:
    """Write both graphs, the runner and its `config.json` with these options."""
    require_onnx()
    if reason := cannot_trace(bundle.model):
        raise RegardError(f"ONNX cannot run this model: {reason}; keep using Regard for it")
    model: Any = bundle.model.cpu().eval()
    traced = TracedModel.of(model)
    ids, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    with torch.no_grad():
        _export(
            traced.encoder.eval(),
            {"ids": ids, "lengths": lengths},
            {"ids": {0: "batch", 1: "source"}, "lengths": {0: "batch"}},
            ["ids", "lengths"],
            [*traced.memory, *traced.past[: traced.first]],
            folder / ENCODER,
        )
        memory, past = _examples(model, traced)
        _export(
            traced.step.eval(),
            {"tokens": torch.ones(2).long(), "lengths": lengths, "memory": memory, "past": past},
            {
                "tokens": {0: "batch"},
                "lengths": {0: "batch"},
                "memory": traced.memory_axes,
                "past": traced.past_axes,
            },
            ["tokens", "lengths", *traced.memory, *traced.past],
            ["logits", *(name.replace("past", "present") for name in traced.past)],
            folder / DECODER,
        )
    shutil.copyfile(Path(__file__).with_name(RUNNER), folder / RUNNER)
    write_json(folder / "config.json", options)


def _examples(model: Any, traced: TracedModel) -> tuple[list[Tensor], list[Tensor]]:
    """Arrays of the right shapes for tracing the decoder step."""
    if traced.first:
        width, settings = model.settings.width, model.settings
        memory = [
            torch.zeros(2, *([1, 3] if len(axes) == 2 else []), width)
            for axes in traced.memory_axes
        ]
        return memory, [torch.zeros(2, settings.decoder_layers, width) for _ in traced.past]
    heads = model.decoder[0].self_attention
    sizes = heads.dim, heads.values.out_features // heads.kv_heads
    shapes = [(2, heads.kv_heads, 3, size) for _ in model.decoder for size in sizes]
    return [torch.zeros(shape) for shape in shapes], [torch.zeros(shape) for shape in shapes]


def _export(
    module: nn.Module,
    arguments: dict[str, Any],
    axes: dict[str, Any],
    inputs: list[str],
    outputs: list[str],
    path: Path,
) -> None:
    size = sum(weight.numel() * 4 for weight in module.parameters())
    with _quiet():
        torch.onnx.export(
            module,
            kwargs=arguments,
            f=path,
            dynamo=True,
            dynamic_shapes=axes,
            input_names=inputs,
            output_names=outputs,
            external_data=size > SINGLE_FILE,
            verbose=False,
        )
    _strip(path)


def _strip(path: Path) -> None:
    """Remove what the exporter notes on each node: stack traces with the paths of this machine."""
    onnx: Any = import_module("onnx")
    model = onnx.load(path, load_external_data=False)
    for node in (*model.graph.node, *model.graph.value_info, model.graph):
        del node.metadata_props[:]
    onnx.save(model, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings, none of which concerns the exported model."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    try:
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
