"""Every part in a model of every family: the settings that the contract tests run through."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.scores import SCORES, Score
from regard.config import RecurrentSettings, TransformerSettings
from regard.models import Model, build
from regard.positions import POSITIONS

SOURCE, TARGET = 11, 13
TRANSFORMER = {"width": 12, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "ffn_width": 10}
RECURRENT = {"width": 8, "encoder_layers": 1, "decoder_layers": 2}


class Quadratic(Normaliser):
    """A user-defined normaliser: squares over their sum."""

    formula = "s² / Σ s²"
    paper = "–"

    def forward(self, scores: Tensor, allowed: Tensor) -> Tensor:
        squares = scores.square().masked_fill(~allowed, 0) + 1e-3 * allowed
        return squares / squares.sum(-1, keepdim=True).clamp(min=1e-6)


class Negative(Score):
    """A user-defined score: minus the largest difference of any coordinate."""

    formula = "−max |q − k|"
    paper = "–"

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return -(queries[:, :, :, None] - keys[:, :, None]).abs().amax(-1)


USER_PARTS = ((NORMALISERS, "quadratic", Quadratic), (SCORES, "negative", Negative))


OPTIONS = {
    "rotary-base-ntk": {"position": {"kind": "rotary", "base": 500.0}},
    "t5-buckets": {"position": {"kind": "t5", "buckets": 8}},
    "learned": {"position": {"kind": "learned"}},
    "entmax-alpha": {"normaliser": {"kind": "entmax", "alpha": 1.2}},
    "positive-sigmoid": {"normaliser": {"kind": "positive", "phi": "sigmoid"}},
    "cosine-scale": {"score": {"kind": "cosine", "scale": 5.0}},
    "window": {"window": 2},
    "window-alibi": {"window": 3, "position": "alibi"},
    "window-sparsemax-additive": {"window": 2, "normaliser": "sparsemax", "score": "additive"},
    "kv-heads-additive": {"kv_heads": 1, "score": "additive", "normaliser": "entmax"},
    "post-rms-relu": {
        "norm_order": "post",
        "norm": "rms",
        "activation": "relu",
        "score": "gaussian",
    },
    "gelu-shaw-cosine": {"activation": "gelu", "position": "shaw", "score": "cosine"},
}


def transformer_cases() -> dict[str, TransformerSettings]:
    """Each part of a Transformer by itself, and combinations that could disturb each other."""
    chosen = {
        **{f"score-{name}": {"score": name} for name in (*SCORES, "negative")},
        **{f"normaliser-{name}": {"normaliser": name} for name in (*NORMALISERS, "quadratic")},
        **{f"position-{name}": {"position": name} for name in POSITIONS},
        **OPTIONS,
    }
    return {
        f"transformer-{name}": TransformerSettings(**{**TRANSFORMER, **parts})
        for name, parts in chosen.items()
    }


def recurrent_cases() -> dict[str, RecurrentSettings]:
    """Each score before and after the step, and each normaliser."""
    chosen = {
        **{f"bahdanau-{name}": {"score": name} for name in (*SCORES, "negative")},
        **{
            f"luong-{name}": {"attention": "luong", "score": name} for name in (*SCORES, "negative")
        },
        **{f"normaliser-{name}": {"normaliser": name} for name in (*NORMALISERS, "quadratic")},
        "lstm-sparsemax": {"cell": "lstm", "normaliser": "sparsemax"},
        "none": {"attention": "none"},
    }
    return {
        f"recurrent-{name}": RecurrentSettings(**{**RECURRENT, **parts})
        for name, parts in chosen.items()
    }


CASES = {**transformer_cases(), **recurrent_cases()}


def make(name: str, **changes: object) -> Model:
    """The model of a case with random weights, in which every table matters."""
    torch.manual_seed(3)
    model = build(CASES[name].model_copy(update=changes), SOURCE, TARGET).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.abs().sum() == 0:  # tables that start at zero would test nothing
                parameter.normal_(std=0.5)
    return model
