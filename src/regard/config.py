"""Settings of models, text and training: frozen, strictly validated, with usable defaults.

The string below a field is its description in the settings table: one line of at most 100
characters.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from regard.errors import RegardError, suggestion
from regard.model_limits import (
    MAX_FACTOR,
    MAX_FFN_WIDTH,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    MAX_WINDOW,
)


class SettingsGroup(BaseModel):
    """A group of settings. Unknown names are errors, and values cannot change."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


PartSetting = str | dict[str, Any]  # a name, or {kind = NAME, option = value, ...}


class TransformerSettings(SettingsGroup):
    """Transformer encoder–decoder (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"
    """Model family."""
    width: int = Field(256, ge=1, le=MAX_WIDTH)
    """Model width: size of a token vector."""
    heads: int = Field(4, ge=1, le=MAX_HEADS)
    """Number of attention heads; they divide the width unless dim is set."""
    dim: int | None = Field(None, ge=1, le=MAX_HEAD_DIM)
    """Size of a head (default: width / heads)."""
    kv_heads: int | None = Field(None, ge=1, le=MAX_HEADS)
    """Key/value heads for grouped-query attention (default: as many as heads)."""
    encoder_layers: int = Field(4, ge=1, le=MAX_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(4, ge=1, le=MAX_LAYERS)
    """Number of decoder layers."""
    ffn_width: int = Field(1024, ge=1, le=MAX_FFN_WIDTH)
    """Inner width of the feed-forward layers."""
    position: PartSetting = "rotary"
    """Position encoding: a name such as rotary or alibi, or {kind, options}."""
    score: PartSetting = "scaled-dot"
    """Attention score: a name such as scaled-dot or cosine, or {kind, options}."""
    normaliser: PartSetting = "softmax"
    """Attention normaliser: a name such as softmax or entmax, or {kind, options}."""
    window: int | None = Field(None, ge=1, le=MAX_WINDOW)
    """Self-attention window: keys at distance less than this (default: no limit)."""
    norm: Literal["layer", "rms"] = "layer"
    """Normalisation: LayerNorm or RMSNorm."""
    norm_order: Literal["pre", "post"] = "pre"
    """Norm before each sublayer (pre) or after it (post, as in the paper)."""
    norm_eps: float | None = Field(None, gt=0, le=1)
    """Number added to the variance in norms (default: 1e-5 for layer, 1e-6 for rms)."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"] = "swiglu"
    """Feed-forward activation; swiglu and geglu are gated by silu and gelu-tanh."""
    biases: bool = True
    """Biases of linear layers; norms keep theirs."""
    embedding_scale: float | None = Field(None, gt=0, le=MAX_FACTOR)
    """Factor of token vectors (default: √width)."""
    embedding_norm: bool = False
    """Norm after embedding and position, as in BART."""
    output_bias: bool = False
    """A bias per vocabulary entry, added to the logits."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout rate of embeddings and sublayer outputs."""
    tie_embeddings: Literal["none", "target", "all", "inputs"] = "target"
    """Weight tying: none, target = output, all three, or inputs (source = target, not output)."""
    attention_backend: str = "auto"
    """Attention backend: auto, reference, sdpa, flex or triton."""


class RecurrentSettings(SettingsGroup):
    """Recurrent encoder–decoder, with attention (Bahdanau et al. 2015, Luong et al. 2015) or
    not."""

    kind: Literal["recurrent"] = "recurrent"
    """Model family."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent cell."""
    attention: Literal["none", "bahdanau", "luong"] = "bahdanau"
    """Attention before each step (bahdanau), after it (luong), or none (one context vector)."""
    score: PartSetting = "additive"
    """Attention score: a name such as additive, dot or general, or {kind, options}."""
    normaliser: PartSetting = "softmax"
    """Attention normaliser: a name such as softmax or entmax, or {kind, options}."""
    width: int = Field(256, ge=2, multiple_of=2, le=MAX_WIDTH)
    """State size; each encoder direction has half of it."""
    encoder_layers: int = Field(1, ge=1, le=MAX_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(1, ge=1, le=MAX_LAYERS)
    """Number of decoder layers."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout rate of embeddings and readouts."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Weight tying: none, target (with output) or all (source too; needs a shared vocabulary)."""


class TextSettings(SettingsGroup):
    """Tokenization of the training data."""

    source_tokenizer: str = "auto"
    """Source tokenizer: auto, characters, bytes, words, bpe or unigram."""
    target_tokenizer: str = "auto"
    """Target tokenizer: auto, characters, bytes, words, bpe or unigram."""
    source_decomposition: Literal["auto", "none", "nfd"] = "auto"
    """Decompose source characters into letters, marks and jamo: auto, none or nfd (always)."""
    target_decomposition: Literal["auto", "none", "nfd"] = "auto"
    """Decompose target characters into letters, marks and jamo; outputs are composed again."""
    source_tags: Literal["auto", "none", "first", "last"] = "auto"
    """Tags of sources, one token each: detected, none, or the first or last field of each text."""
    target_order: Literal["auto", "forward", "reversed"] = "auto"
    """Order in which targets are generated (auto: forward; for half of --seeds, reversed)."""
    target_tags: Literal["auto", "none", "first", "last"] = "auto"
    """Tags of targets, one token each: detected, none, or the first or last field of each text."""
    vocabulary_size: int | None = Field(None, ge=1)
    """Vocabulary size of bpe and unigram tokenizers (default: by the amount of text)."""
    shared_vocabulary: bool | None = None
    """One vocabulary for both sides (default: yes if both sides are subwords of the same size)."""
    max_tokens: int = Field(512, ge=1)
    """Maximum tokens per side; longer pairs are skipped and reported."""
    hallucination: int | None = Field(None, ge=0)
    """Pairs with random stems added to the training data (default: by the data; 0: none)."""
    extend_vocabulary: bool = True
    """Fine-tuning: add new characters or words to the tokenizers (else they are unknown)."""
    source_language: str | None = None
    """Language of the sources, by its code in a multilingual model or tokenizer."""
    target_language: str | None = None
    """Language of the targets, by its code in a multilingual model or tokenizer."""
    split_seed: int = Field(1, ge=0, lt=2**63)
    """Seed of the held-out split. Models with the same split_seed and data can be compared."""


class TrainSettings(SettingsGroup):
    """Training settings. At most one of `minutes`, `steps` and `epochs` is given.

    Defaults of `rdrop` and `bpe_dropout`: if the data are small and the machine has time for it,
    R-Drop with α = 1, for very small running text α = 3 and BPE-dropout of 0.1. Otherwise 0.

    `patience` is three eighths of `evaluations` by default, and 0 (never stop early) if `steps` or
    `epochs` are given. It counts while the model is better than the baselines and makes errors:
    without any, the held-out set cannot tell whether other inputs would still gain.
    """

    seed: int = Field(1, ge=0, lt=2**63)
    """Seed of weights, batches and dropout; it changes neither held-out split nor tokenizers."""
    minutes: float | None = Field(None, gt=0)
    """Training time in minutes; the schedule is fitted to the measured speed."""
    steps: int | None = Field(None, ge=1)
    """Number of updates."""
    epochs: float | None = Field(None, gt=0)
    """Number of passes over the data."""
    batch_tokens: int | None = Field(None, ge=1)
    """Source and target tokens per step (default: by the data and the device)."""
    gradient_accumulation: Literal[1, 2, 4, 8, 16, 32] = 1
    """Parts in which each step is computed, to save memory."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Optimizer: Muon (orthogonalised updates) or AdamW."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate (default: by the model width)."""
    schedule: Literal["cosine", "linear", "inverse-sqrt", "stable"] = "linear"
    """Learning-rate decay after warm-up."""
    warmup: float = Field(0.03, ge=0, lt=1)
    """Fraction of the run in which the learning rate warms up."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay."""
    label_smoothing: float = Field(0.05, ge=0, lt=1)
    """Label smoothing."""
    rdrop: float | None = Field(None, ge=0)
    """R-Drop weight α (default: by the data, the machine and the minutes)."""
    bpe_dropout: float | None = Field(None, ge=0, le=1)
    """BPE-dropout probability (default: by the data, the machine and the minutes)."""
    clip_norm: float = Field(1.0, gt=0)
    """Gradient-norm clipping threshold."""
    weight_average: Literal["none", "ema", "last"] = "ema"
    """Weight averaging: none, exponential moving average, or mean of the last evaluations."""
    average_count: int = Field(10, ge=1)
    """Evaluations to average (last), or averaging window in 200ths of the run (ema)."""
    evaluations: int = Field(8, ge=1)
    """Number of evaluations on the held-out set during the run."""
    select: str | None = None
    """Metric that selects the best model and stops early (default: an error rate, or chrf)."""
    patience: int | None = Field(None, ge=0)
    """Early stopping: end after this many evaluations without improvement; 0: never."""
    freeze: tuple[str, ...] = ()
    """Parameters that stay fixed: name patterns such as encoder.*, source.*."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute precision; weights stay in float32. auto: bfloat16 on GPUs that support it."""
    cuda_graphs: bool = True
    """Capture training steps as CUDA graphs, one per shape (GPU only)."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: replicate the model (ddp) or shard it (fsdp)."""
    checkpoint_seconds: float = Field(60.0, ge=0)
    """Maximum seconds between checkpoints."""
    film: int | None = Field(None, ge=0, le=500)
    """Snapshots for the training film (default: 40 up to 4 million parameters, else none)."""


def head_dim(settings: TransformerSettings) -> int:
    """The size of a head."""
    return settings.dim or settings.width // settings.heads


ModelSettings = Annotated[TransformerSettings | RecurrentSettings, Field(discriminator="kind")]


def _sizes(*, layers: int, **sizes: int) -> dict[str, Any]:
    return {**sizes, "encoder_layers": layers, "decoder_layers": layers}


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "tiny": _sizes(width=64, heads=4, layers=2, ffn_width=176) | {"tie_embeddings": "none"},
        "mini": _sizes(width=128, heads=4, layers=3, ffn_width=512),
        "small": _sizes(width=256, heads=4, layers=4, ffn_width=1024),
        "base": _sizes(width=512, heads=8, layers=6, ffn_width=2048),
        "big": _sizes(width=1024, heads=16, layers=6, ffn_width=4096),
        # base with a shallow decoder, which takes most of the time of search (Kasai et al. 2021)
        "student": _sizes(width=512, heads=8, layers=6, ffn_width=2048) | {"decoder_layers": 2},
    },
    "recurrent": {
        "tiny": {"width": 128},
        "mini": {"width": 192},
        "small": {"width": 256},
        "base": {"width": 512, "encoder_layers": 2, "decoder_layers": 2},
        "big": {"width": 1024, "encoder_layers": 3, "decoder_layers": 3},
    },
}


def parse(kind: Any, values: dict[str, Any], path: str = "") -> Any:
    """Build settings from plain values; an error names the setting by its dotted path."""
    try:
        settings = _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        location = [str(part) for part in first["loc"]]
        dotted = ".".join(part for part in (path, *location) if part and part not in PRESETS)
        if first["type"] == "extra_forbidden":
            hint = suggestion(location[-1], _known_names(kind, location))
            raise RegardError(f"unknown setting {dotted}; {hint}") from None
        raise RegardError(f"{dotted}: {first['msg'].lower()}; got {first['input']!r:.80}") from None
    for name, value in values.items():
        if isinstance(value, bool) and not isinstance(getattr(settings, name), bool):
            # pydantic accepts True and False as 1 and 0
            raise RegardError(f"{path}.{name}: input should be a number; got {value!r}")
    return settings


_adapter = cache(TypeAdapter)  # building one takes longer than validating with it


def _known_names(kind: Any, location: list[str]) -> list[str]:
    """The setting names that are valid at the location of an unknown one."""
    for part in location[:-1]:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[part].annotation
        else:  # pydantic adds the discriminator of a union member to the location
            kind = _union_members(kind).get(part, kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return list(kind.model_fields)
    members = _union_members(kind).values()
    return sorted({name for member in members for name in member.model_fields})


def _union_members(kind: Any) -> dict[str, type[BaseModel]]:
    """The members of an annotated union by their `kind`."""
    return {member.model_fields["kind"].default: member for member in get_args(get_args(kind)[0])}


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read the values of a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RegardError(f"cannot read settings {str(path)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RegardError(f"{str(path)!r} is not valid TOML: {error}") from None
    except RecursionError:
        raise RegardError(f"{str(path)!r} is nested too deeply; write flat values") from None
