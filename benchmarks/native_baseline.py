"""The baseline of the native benchmark: the same Transformer on CTranslate2 (MIT licence).

Converts rotary, pre-norm, SwiGLU models, the default of Regard and of the benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Tensors = Mapping[str, np.ndarray]


def write_ctranslate2(
    settings: Mapping[str, Any], sizes: tuple[int, int], tensors: Tensors, folder: Path
) -> None:
    """Write the model as a CTranslate2 folder whose tokens are ids in words."""
    from ctranslate2.specs import common_spec, transformer_spec

    common: dict[str, Any] = {
        "pre_norm": True,
        "activation": common_spec.Activation.SWISH,
        "ffn_glu": True,
        "rotary_dim": 0,
        "rotary_interleave": False,
        "rotary_base": 10000.0,
    }
    layers, heads = ("encoder_layers", "decoder_layers"), settings["heads"]
    encoder = transformer_spec.TransformerEncoderSpec(settings[layers[0]], heads, **common)
    decoder = transformer_spec.TransformerDecoderSpec(settings[layers[1]], heads, **common)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    for name, side, stack in (("encoder", "source", encoder), ("decoder", "target", decoder)):
        embeddings = stack.embeddings[0] if name == "encoder" else stack.embeddings
        embeddings.weight = tensors[f"{side}.table"]
        stack.scale_embeddings = True
        _norm(stack.layer_norm, tensors, f"{name}_norm")
        for index, layer in enumerate(stack.layer):
            _layer(layer, tensors, f"{name}.{index}", settings["ffn_width"])
    decoder.projection.weight = tensors["target.table"]
    spec.register_source_vocabulary([str(i) for i in range(sizes[0])])
    spec.register_target_vocabulary([str(i) for i in range(sizes[1])])
    spec.config.unk_token, spec.config.bos_token = "0", "1"
    spec.config.eos_token, spec.config.decoder_start_token = "2", "1"
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _layer(layer: Any, tensors: Tensors, name: str, ffn_width: int) -> None:
    own, is_decoder = f"{name}.self_attention", name.startswith("decoder")
    projections = layer.self_attention.linear
    _linear(projections[0], tensors, f"{own}.queries", f"{own}.keys", f"{own}.values")
    _linear(projections[1], tensors, f"{own}.out")
    _norm(layer.self_attention.layer_norm, tensors, f"{name}.residual1.norm")
    if is_decoder:
        cross = f"{name}.cross_attention"
        _linear(layer.attention.linear[0], tensors, f"{cross}.queries")
        _linear(layer.attention.linear[1], tensors, f"{cross}.keys", f"{cross}.values")
        _linear(layer.attention.linear[2], tensors, f"{cross}.out")
        _norm(layer.attention.layer_norm, tensors, f"{name}.residual2.norm")
    _norm(layer.ffn.layer_norm, tensors, f"{name}.residual{3 if is_decoder else 2}.norm")
    weight = tensors[f"{name}.feed_forward.inner.weight"]
    bias = tensors[f"{name}.feed_forward.inner.bias"]
    layer.ffn.linear_0.weight, layer.ffn.linear_0.bias = weight[:ffn_width], bias[:ffn_width]
    gate = layer.ffn.linear_0_noact
    gate.weight, gate.bias = weight[ffn_width:], bias[ffn_width:]
    _linear(layer.ffn.linear_1, tensors, f"{name}.feed_forward.outer")


def _linear(spec: Any, tensors: Tensors, *names: str) -> None:
    spec.weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([tensors[f"{name}.bias"] for name in names])


def _norm(spec: Any, tensors: Tensors, name: str) -> None:
    spec.gamma, spec.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]


class CTranslate2:
    """A CTranslate2 folder, searched like the native engine."""

    def __init__(self, folder: Path, compute: str, threads: int = 1) -> None:
        import ctranslate2

        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute, inter_threads=threads, intra_threads=1
        )

    def __call__(
        self, sources: Sequence[Sequence[int]], *, beam: int, forced: int | None, most: int
    ) -> list[list[int]]:
        """The best output of each source; `forced`: exactly that many tokens."""
        lengths = {"min_decoding_length": 0, "max_decoding_length": most + 1}
        if forced:
            lengths = {"min_decoding_length": forced + 1, "max_decoding_length": forced + 1}
        found = self.translator.translate_batch(
            [[str(token) for token in ids] for ids in sources],
            beam_size=beam,
            length_penalty=0,
            **lengths,
        )
        return [[int(token) for token in one.hypotheses[0]] for one in found]
