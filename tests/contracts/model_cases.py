"""The contract matrix: every part in a model of every family, as settings of tiny models."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache

import torch
from torch import Tensor, nn

from regard.attention.normalisers import NORMALISERS, PHI, Normaliser
from regard.attention.scores import SCORES, Score
from regard.bundle import Bundle
from regard.config import RecurrentSettings, TransformerSettings
from regard.models import Model, build
from regard.pipeline import Pipeline
from regard.positions import POSITIONS, BiasPosition, Sinusoidal
from regard.positions.absolute import RotaryPosition
from regard.ragged import Ragged
from regard.text import BEGIN, END, train_tokenizer

SOURCE_TEXT, TARGET_TEXT = "abcdefgh", "ABCDEFGHIJ"
SOURCE, TARGET = len(SOURCE_TEXT) + 3, len(TARGET_TEXT) + 3  # with the special tokens
TRANSFORMER = {"width": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 10}
RECURRENT = {"width": 8, "encoder_layers": 1, "decoder_layers": 1}


class Quadratic(Normaliser):
    """A user-defined normaliser: squares over their sum."""

    formula = "s² / Σ s²"
    paper = "–"

    def forward(self, scores: Tensor, allowed: Tensor) -> Tensor:
        squares = scores.square().masked_fill(~allowed, 0) + 1e-3 * allowed
        return squares / squares.sum(-1, keepdim=True).clamp(min=1e-6)


class Manhattan(Score):
    """A user-defined score with a learned factor per head: −f ‖q − k‖₁."""

    formula = "−f Σᵢ |q[i] − k[i]|"
    paper = "–"

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__(heads, dim)
        self.factor = nn.Parameter(torch.rand(heads) + 0.5)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        distances = (queries[:, :, :, None] - keys[:, :, None]).abs().sum(-1)
        return -self.factor[:, None, None] * distances


class Halved(BiasPosition):
    """A user-defined bias: halves the score of keys behind the query."""

    formula = "s / 2 where key < query"
    paper = "–"

    def forward(self, scores: Tensor, site) -> Tensor:
        return torch.where(site.key < site.query, scores / 2, scores)


class Flipped(RotaryPosition):
    """A user-defined rotation: changes the sign of vectors at odd positions."""

    formula = "(−1)^position · x"
    paper = "–"

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        return vectors * (1 - 2 * (positions % 2))[..., None].to(vectors.dtype)


class Ramp(Sinusoidal):
    """A user-defined additive position: position / 10 in every dimension."""

    formula = "position / 10"
    paper = "–"

    def forward(self, positions: Tensor) -> Tensor:
        return positions[..., None].expand(*positions.shape, self.width) / 10


USER_PARTS = (
    (NORMALISERS, "quadratic", Quadratic),
    (SCORES, "manhattan", Manhattan),
    (POSITIONS, "halved", Halved),
    (POSITIONS, "flipped", Flipped),
    (POSITIONS, "ramp", Ramp),
)
ALL_SCORES = (*SCORES, "manhattan")
ALL_NORMALISERS = (*NORMALISERS, "quadratic")
ALL_POSITIONS = (*POSITIONS, "halved", "flipped", "ramp")

OPTIONS = {
    "rotary-base": {"position": {"kind": "rotary", "base": 500.0}},
    "rotary-neighbours": {"position": {"kind": "rotary", "pairs": "neighbours"}},
    "rotary-linear": {"position": {"kind": "rotary", "scaling": "linear", "factor": 3.0}},
    "rotary-ntk": {"position": {"kind": "rotary", "scaling": "ntk", "factor": 2.0}},
    "rotary-fraction": {"position": {"kind": "rotary", "fraction": 0.34}},
    "t5-buckets": {"position": {"kind": "t5", "buckets": 4, "max_distance": 3}},
    "distance-reach": {"position": {"kind": "distance", "max_distance": 2}},
    "shaw-reach": {"position": {"kind": "shaw", "max_distance": 2}},
    "entmax-alpha": {"normaliser": {"kind": "entmax", "alpha": 1.2}},
    **{f"positive-{phi}": {"normaliser": {"kind": "positive", "phi": phi}} for phi in PHI},
    "cosine-scale": {"score": {"kind": "cosine", "scale": 5.0}},
    "window": {"window": 2},
    "window-itself": {"window": 1},
    "window-alibi": {"window": 3, "position": "alibi"},
    "window-sparsemax-additive": {"window": 2, "normaliser": "sparsemax", "score": "additive"},
    "kv-heads-additive": {"kv_heads": 1, "score": "additive", "normaliser": "entmax"},
    "rms-relu-gaussian": {"norm": "rms", "activation": "relu", "score": "gaussian"},
    "gelu-shaw-cosine": {"activation": "gelu", "position": "shaw", "score": "cosine"},
    **{
        f"{bias}-cosine-{normaliser}": {
            "position": bias,
            "score": {"kind": "cosine", "scale": 2.0},
            "normaliser": normaliser,
        }
        for bias in ("alibi", "distance", "t5", "shaw")
        for normaliser in ("sparsemax", "none")
    },
    "untied": {"tie_embeddings": "none"},
    "activation-gelu-tanh": {"activation": "gelu-tanh"},
    "activation-silu": {"activation": "silu", "norm_order": "post"},
    "activation-geglu": {"activation": "geglu"},
    "embedding-norm": {"embedding_norm": True},
    "embedding-norm-rms": {"embedding_norm": True, "norm": "rms", "position": "learned"},
    "embedding-scale": {"embedding_scale": 0.5, "position": "sinusoidal"},
    "output-bias": {"output_bias": True},
    "dim-large": {"dim": 10, "decoder_layers": 2},
    "dim-small": {"dim": 2, "heads": 5, "kv_heads": 1, "position": "shaw"},
    "dim-additive": {"dim": 4, "score": "additive", "position": "distance"},
    "no-biases": {"biases": False, "kv_heads": 1},
    "norm-eps": {"norm_eps": 0.1},
    "norm-eps-rms": {"norm_eps": 0.1, "norm": "rms"},
    "tied-inputs": {"tie_embeddings": "inputs"},
    "like-bart": {
        "position": {"kind": "learned", "max_length": 20},
        "norm_order": "post",
        "activation": "gelu",
        "embedding_norm": True,
        "embedding_scale": 1.0,
        "output_bias": True,
        "tie_embeddings": "all",
    },
    "like-t5": {
        "position": {"kind": "t5", "buckets": 6, "max_distance": 5},
        "norm": "rms",
        "norm_eps": 1e-3,
        "activation": "geglu",
        "biases": False,
        "dim": 5,
        "embedding_scale": 1.0,
        "tie_embeddings": "inputs",
        "decoder_layers": 2,
    },
}


def transformer_cases() -> dict[str, TransformerSettings]:
    """Each part of a Transformer by itself, and combinations that could disturb each other."""
    deep = {"decoder_layers": 2}  # positions act in every layer of a KV cache
    post = {**deep, "norm_order": "post", "kv_heads": 1}
    chosen = {
        **{f"score-{name}": {"score": name} for name in ALL_SCORES},
        **{f"normaliser-{name}": {"normaliser": name} for name in ALL_NORMALISERS},
        **{f"position-{name}": {"position": name, **deep} for name in ALL_POSITIONS},
        **{f"post-norm-{name}": {"position": name, **post} for name in ALL_POSITIONS},
        **OPTIONS,
    }
    return {
        f"transformer-{name}": TransformerSettings(**{**TRANSFORMER, **parts})
        for name, parts in chosen.items()
    }


def recurrent_cases() -> dict[str, RecurrentSettings]:
    """Each score before and after the step, each normaliser, and the other cells."""
    luong = {"attention": "luong"}
    chosen = {
        **{f"bahdanau-{name}": {"score": name} for name in ALL_SCORES},
        **{f"luong-{name}": {**luong, "score": name} for name in ALL_SCORES},
        **{f"normaliser-{name}": {"normaliser": name} for name in ALL_NORMALISERS},
        "lstm-bahdanau": {"cell": "lstm", "encoder_layers": 2, "decoder_layers": 2},
        "lstm-luong": {"cell": "lstm", **luong, "score": "dot"},
        "lstm-sparsemax": {"cell": "lstm", "normaliser": "sparsemax"},
        "lstm-none": {"cell": "lstm", "attention": "none"},
        "none": {"attention": "none"},
    }
    return {
        f"recurrent-{name}": RecurrentSettings(**{**RECURRENT, **parts})
        for name, parts in chosen.items()
    }


CASES = {**transformer_cases(), **recurrent_cases()}
PAIRS = {  # every score with every normaliser, in each family
    f"{family}-{score}-{normaliser}": base.model_copy(
        update={"score": score, "normaliser": normaliser}
    )
    for family, base in (
        ("transformer", TransformerSettings(**TRANSFORMER)),
        ("recurrent", RecurrentSettings(**RECURRENT)),
    )
    for score in ALL_SCORES
    for normaliser in ALL_NORMALISERS
}


def source_size(settings: TransformerSettings | RecurrentSettings) -> int:
    """The size of the source vocabulary: that of the target where both share a table."""
    return TARGET if settings.tie_embeddings in ("all", "inputs") else SOURCE


@lru_cache(maxsize=4)
def _make_once(settings: str, name: str) -> Model:
    torch.manual_seed(3)
    parsed = {**CASES, **PAIRS}[name].model_validate_json(settings)
    model = build(parsed, source_size(parsed), TARGET).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def make(name: str, **changes: object) -> Model:
    """The model of a case with random weights, in which every table and bias matters."""
    settings = {**CASES, **PAIRS}[name].model_copy(update=changes)
    return deepcopy(_make_once(settings.model_dump_json(), name))


def make_pipeline(name: str) -> Pipeline:
    """The model of a case with tokenizers, one character per token."""
    model = make(name)
    shared = source_size(model.settings) == TARGET
    texts = TARGET_TEXT.lower() if shared else SOURCE_TEXT, TARGET_TEXT
    source, target = (train_tokenizer("characters", [text]) for text in texts)
    return Pipeline(Bundle(model, source, target, model.settings, {}))


def random_ids(lengths: list[int], vocabulary: int, seed: int = 1) -> list[list[int]]:
    """Sequences of these lengths, without special tokens."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocabulary, (n,), generator=draw).tolist() for n in lengths]


def encoder_input(sources: list[list[int]]) -> Ragged:
    """Sources as a batch, each with END."""
    return Ragged.of([torch.tensor([*ids, END]) for ids in sources])


def decoder_input(targets: list[list[int]]) -> Ragged:
    """Targets as a batch, each after BEGIN."""
    return Ragged.of([torch.tensor([BEGIN, *ids]) for ids in targets])


@torch.no_grad()
def teacher_forced_logps(
    model: Model, sources: list[list[int]], targets: list[list[int]]
) -> list[float]:
    """log p(target, END | source) of each pair by one pass over all positions, in float64."""
    logits = model.double()(encoder_input(sources), decoder_input(targets))
    labels = [torch.tensor([*ids, END]) for ids in targets]
    return [
        float(row.log_softmax(-1).gather(1, ids[:, None]).sum())
        for row, ids in zip(logits.unbind(), labels, strict=True)
    ]
