"""Settings: what people may choose, with defaults good enough that nobody must. Frozen and strict."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from regard.errors import RegardError, suggestion


class Settings(BaseModel):
    """A group of settings; unknown names are errors, and nothing changes after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


PartSetting = str | dict[str, Any]  # a name, or {kind = NAME, option = value, ...}


class TransformerSettings(Settings):
    """A Transformer encoder–decoder (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"
    width: int = Field(256, ge=1)
    """Size of a token's vector."""
    heads: int = Field(4, ge=1)
    """Attention heads; they share `width`."""
    kv_heads: int | None = None
    """Groups of keys and values; fewer than heads saves memory (default: one a head)."""
    encoder_layers: int = Field(4, ge=1)
    """Layers of the encoder."""
    decoder_layers: int = Field(4, ge=1)
    """Layers of the decoder."""
    ffn_width: int = Field(1024, ge=1)
    """Width inside a feed-forward layer."""
    position: PartSetting = "rotary"
    """Position encoding: a name such as rotary or alibi, or {kind, options}."""
    score: PartSetting = "scaled-dot"
    """Attention score: a name such as scaled-dot or cosine, or {kind, options}."""
    normaliser: PartSetting = "softmax"
    """Attention normaliser: a name such as softmax or entmax, or {kind, options}."""
    window: int | None = Field(None, ge=1)
    """Self-attention window: keys at distance less than this (default: no limit)."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm."""
    norm_order: Literal["pre", "post"] = "pre"
    """Norm before each sublayer, or after it as in the paper."""
    activation: Literal["relu", "gelu", "swiglu"] = "swiglu"
    """What bends the feed-forward layer."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of each sublayer's output that is dropped in training."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Which embeddings share one table: none, target with output, or source too (shared vocabulary)."""
    attention_backend: str = "auto"
    """What runs the attention: auto, reference, sdpa, flex or triton."""


class RecurrentSettings(Settings):
    """A recurrent encoder–decoder, with attention (Bahdanau 2015, Luong 2015) or the bottleneck without."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell."""
    attention: Literal["none", "bahdanau", "luong"] = "bahdanau"
    """Attention before each step (bahdanau), after it (luong), or none (one context vector)."""
    score: PartSetting = "additive"
    """Attention score: a name such as additive, dot or general, or {kind, options}."""
    normaliser: PartSetting = "softmax"
    """Attention normaliser: a name such as softmax or entmax, or {kind, options}."""
    width: int = Field(256, ge=2, multiple_of=2)
    """Size of a state; each direction of the encoder has half of it."""
    encoder_layers: int = Field(1, ge=1)
    """Layers of the encoder."""
    decoder_layers: int = Field(1, ge=1)
    """Layers of the decoder."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of embeddings and readouts dropped in training."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Which embeddings share one table."""


class TextSettings(Settings):
    """How text becomes ids."""

    source_tokenizer: str = "auto"
    """Tokeniser of the source: auto, characters, bytes, words, bpe or unigram."""
    target_tokenizer: str = "auto"
    """Tokeniser of the target."""
    vocabulary_size: int | None = Field(None, ge=1)
    """Pieces in a bpe or unigram vocabulary (default: by the size of the data)."""
    shared_vocabulary: bool | None = None
    """One vocabulary for both sides (default: for running text in one kind of script)."""
    max_tokens: int = Field(512, ge=1)
    """The most tokens a side may have; longer pairs are counted, said and left out."""


class TrainSettings(Settings):
    """How a model learns. Of `minutes`, `steps` and `epochs`, one at most is given."""

    seed: int = Field(1, ge=0, lt=2**63)
    """What every random choice comes from."""
    minutes: float | None = Field(None, gt=0)
    """Stop after about so much time: the speed is measured on the way, and the schedule ends there."""
    steps: int | None = Field(None, ge=1)
    """Stop after so many updates."""
    epochs: float | None = Field(None, gt=0)
    """Stop after so many times through the data."""
    batch_tokens: int | None = Field(None, ge=1)
    """Source and target tokens to a step (default: by the data and the machine)."""
    gradient_accumulation: Literal[1, 2, 4, 8, 16, 32] = 1
    """Parts in which a step is computed, to save memory."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Muon turns each matrix's update orthogonal and learns small models faster; AdamW is the classic."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate (default: by the width of the model)."""
    schedule: Literal["cosine", "linear", "inverse-sqrt", "stable"] = "linear"
    """How the rate goes down."""
    warmup: float = Field(0.03, ge=0, lt=1)
    """Share of the run in which the rate goes up."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay."""
    label_smoothing: float = Field(0.05, ge=0, lt=1)
    """Label smoothing."""
    rdrop: float | None = Field(None, ge=0)
    """Above 0: read everything twice, with other dropout, and pull the two answers together (R-Drop's α; default: on a
    GPU, if no minutes are given, 1 for little data and 3 for very little text; else 0)."""
    bpe_dropout: float | None = Field(None, ge=0, le=1)
    """Chance that a bpe piece is read as the two it was merged from, and those in turn, in the way of BPE-dropout
    (default: on a GPU, if no minutes are given, 0.1 for very little text; else 0)."""
    clip_norm: float = Field(1.0, gt=0)
    """The longest gradient; longer ones are shortened."""
    weight_average: Literal["none", "ema", "last"] = "ema"
    """Average weights: a moving average over steps, or of the last `averaged` evaluations."""
    average_count: int = Field(10, ge=1)
    """For last: how many evaluations. For ema: a window of a 200th of the run times this."""
    evaluations: int = Field(8, ge=1)
    """How often to decode the held-out part."""
    patience: int | None = Field(None, ge=1)
    """Stop when the task's metric has not improved for so many evaluations."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """bfloat16 computes in half the size and keeps weights in float32; auto takes it on GPUs that have it."""
    cuda_graphs: bool = True
    """On a GPU, record each step's kernels once (a CUDA graph for each shape) and replay them."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: copy the model to each, or shard it among them."""
    checkpoint_seconds: float = Field(60.0, ge=0)
    """Save at least so often."""


ModelSettings = Annotated[TransformerSettings | RecurrentSettings, Field(discriminator="kind")]

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "tiny": {
            "width": 64,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "ffn_width": 176,
            "tie_embeddings": "none",
        },
        "small": {"width": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, "ffn_width": 1024},
        "base": {"width": 512, "heads": 8, "encoder_layers": 6, "decoder_layers": 6, "ffn_width": 2048},
        "big": {"width": 1024, "heads": 16, "encoder_layers": 6, "decoder_layers": 6, "ffn_width": 4096},
    },
    "recurrent": {
        "tiny": {"width": 128},
        "small": {"width": 256},
        "base": {"width": 512, "encoder_layers": 2, "decoder_layers": 2},
        "big": {"width": 1024, "encoder_layers": 3, "decoder_layers": 3},
    },
}


def parse(kind: Any, values: dict[str, Any], path: str = "") -> Any:
    """Settings from plain values, or one line that names what is wrong, by its dotted path."""
    try:
        made = TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        dotted = ".".join(part for part in (path, *place) if part and part not in PRESETS)
        if first["type"] == "extra_forbidden":
            raise RegardError(f"unknown setting {dotted}; {suggestion(place[-1], _known(kind, place))}") from None
        raise RegardError(f"{dotted}: {first['msg'].lower()}; got {first['input']!r}") from None
    for name, value in values.items():
        if isinstance(value, bool) and not isinstance(getattr(made, name), bool):  # it was taken for 1 or 0
            raise RegardError(f"{path}.{name}: input should be a number; got {value!r}")
    return made


def _known(kind: Any, place: list[str]) -> list[str]:
    """The settings that stand where an unknown one was found."""
    for part in place[:-1]:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[part].annotation
        else:  # the members of a union are told apart by their kind
            kind = _members(kind).get(part, kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return list(kind.model_fields)
    return sorted({name for member in _members(kind).values() for name in member.model_fields})


def _members(kind: Any) -> dict[str, type[BaseModel]]:
    """The members of an annotated union, by their kind."""
    return {member.model_fields["kind"].default: member for member in get_args(get_args(kind)[0])}


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values of a TOML file, or one line that says what is wrong with it."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RegardError(f"cannot read settings {str(path)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RegardError(f"{str(path)!r} is no TOML: {error}") from None
