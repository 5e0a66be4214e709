"""Small random models of every kind, with tokenizers of a few symbols."""

import torch

from regard.bundle import Bundle
from regard.config import RecurrentSettings, TransformerSettings
from regard.models import build
from regard.pipeline import Pipeline
from regard.text import train_tokenizer

SMALL = {"width": 12, "heads": 4, "encoder_layers": 2, "decoder_layers": 1, "ffn_width": 10}
KINDS = {
    "none": TransformerSettings(**SMALL, position="none", activation="relu", tie_embeddings="none"),
    "sinusoidal": TransformerSettings(
        **SMALL, position="sinusoidal", activation="relu", norm_order="post"
    ),
    "learned": TransformerSettings(**SMALL, position="learned", activation="gelu", norm="rms"),
    "rotary": TransformerSettings(
        **SMALL | {"width": 24}, position="rotary", activation="swiglu", kv_heads=2
    ),
    "alibi": TransformerSettings(**SMALL, position="alibi", norm_order="post", norm="rms"),
    "distance": TransformerSettings(**SMALL, position="distance"),
    "t5": TransformerSettings(**SMALL, position="t5", activation="gelu"),
    "shaw": TransformerSettings(**SMALL, position="shaw", kv_heads=2),
    "bart": TransformerSettings(
        **SMALL,
        position="learned",
        norm_order="post",
        activation="silu",
        embedding_norm=True,
        embedding_scale=1.0,
        output_bias=True,
    ),
    "t5-1.1": TransformerSettings(
        **SMALL | {"dim": 4},
        position="t5",
        norm="rms",
        norm_eps=1e-3,
        activation="geglu",
        biases=False,
        tie_embeddings="none",
    ),
    "gelu-tanh": TransformerSettings(**SMALL, position="sinusoidal", activation="gelu-tanh"),
    "bottleneck": RecurrentSettings(width=8, attention="none", encoder_layers=2),
    "additive": RecurrentSettings(width=8, attention="bahdanau", decoder_layers=2),
    "additive-lstm": RecurrentSettings(
        width=8, attention="bahdanau", cell="lstm", encoder_layers=2
    ),
    "dot": RecurrentSettings(
        width=8, attention="luong", score="dot", decoder_layers=2, cell="lstm"
    ),
    "general": RecurrentSettings(
        width=8, attention="luong", score="general", tie_embeddings="none"
    ),
    "concat": RecurrentSettings(width=8, attention="luong"),
}
ATTENDING = [kind for kind in KINDS if kind != "bottleneck"]
TRANSFORMERS = [
    kind for kind, settings in KINDS.items() if isinstance(settings, TransformerSettings)
]


def random_model(kind: str) -> Pipeline:
    """Random weights, biases and gains too, so that no term is invisible."""
    torch.manual_seed(5)
    source, target = (
        train_tokenizer("characters", ["abandon zebra"]),
        train_tokenizer("words", ["AH B AE N Z IY"]),
    )
    model = build(KINDS[kind], len(source), len(target)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return Pipeline(
        Bundle(model, source, target, KINDS[kind], {"longest": {"source": 9, "target": 7}})
    )
