"""Tiny random Hugging Face models of every family that Regard imports, several sizes each."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

BART_SIZES: list[dict[str, Any]] = [
    {"vocab_size": 90, "d_model": 64, "heads": 4, "layers": (2, 2), "ffn": (96, 96)},
    {"vocab_size": 37, "d_model": 30, "heads": 3, "layers": (1, 3), "ffn": (20, 44)},
    {"vocab_size": 3, "d_model": 14, "heads": 7, "layers": (1, 1), "ffn": (5, 3)},
]
BART_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("MarianMTModel", {"activation_function": "swish", "scale_embedding": True}),
    "marian-two-vocabularies": (
        "MarianMTModel",
        {"share_encoder_decoder_embeddings": False, "activation_function": "relu"},
    ),
    "bart": ("BartForConditionalGeneration", {}),
    "bart-scaled": (
        "BartForConditionalGeneration",
        {"scale_embedding": True, "activation_function": "gelu_new"},
    ),
    "mbart": ("MBartForConditionalGeneration", {"scale_embedding": True}),
    "m2m_100": ("M2M100ForConditionalGeneration", {"activation_function": "relu"}),
    "pegasus": (
        "PegasusForConditionalGeneration",
        {"activation_function": "relu", "scale_embedding": True},
    ),
    "blenderbot": ("BlenderbotForConditionalGeneration", {"scale_embedding": True}),
    "fsmt": ("FSMTForConditionalGeneration", {"activation_function": "relu"}),
}
T5_SIZES: list[dict[str, Any]] = [
    {"vocab_size": 90, "d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 96, "num_layers": 2},
    {"vocab_size": 41, "d_model": 20, "d_kv": 6, "num_heads": 3, "d_ff": 31, "num_layers": 1},
    {"vocab_size": 3, "d_model": 9, "d_kv": 5, "num_heads": 1, "d_ff": 4, "num_layers": 1},
]
T5_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", {}),
    "t5-1.1": (
        "T5ForConditionalGeneration",
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "t5-gated-silu": (
        "T5ForConditionalGeneration",
        {"feed_forward_proj": "gated-silu", "num_decoder_layers": 3, "layer_norm_epsilon": 1e-3},
    ),
    "mt5": ("MT5ForConditionalGeneration", {}),
}
NAMES = [*BART_FAMILIES, *T5_FAMILIES]
SIZES = range(3)
LENGTH = 60  # positions
SPECIAL = {"pad_token_id": "<pad>", "bos_token_id": "<s>", "eos_token_id": "</s>"}
END_GAP = 2.0  # of the logit of END below all others together: about every eighth token is END
SHARPNESS = 2.5  # of outputs; those of plain random weights are nearly uniform


def random_hf_model(name: str, size: int, seed: int = 0) -> Any:
    """A model whose weights are all random: norms, biases, position tables and logit biases."""
    torch.manual_seed(seed)
    model = _bart_model(name, size) if name in BART_FAMILIES else _t5_model(name, size)
    # T5 1.0 scales its outputs down, so that its tables are larger.
    tables = ("shared.weight",) if getattr(model.config, "scale_decoder_outputs", False) else ()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "relative_attention_bias" in key:
                parameter.normal_(0, 0.7)
            elif "embed_positions" not in key:
                size = 1.0 if key in tables else parameter.shape[-1] ** -0.5
                parameter.copy_(torch.randn_like(parameter) * size)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(0, 0.5)
        if name == "t5-1.1":
            untied = torch.randn_like(model.lm_head.weight) * 0.3
            model.lm_head.weight = torch.nn.Parameter(untied)
        for last in _last_norms(model):
            last.mul_(SHARPNESS)
    if name in ("bart", "mbart", "m2m_100"):  # a given first token, such as a language
        model.generation_config.forced_bos_token_id = 0
    _make_outputs_end(model.eval())
    return model


def _last_norms(model: Any) -> list[torch.Tensor]:
    """The parameters of the norm before the output layer: larger ones give sharper outputs."""
    names = [name for name, _ in model.named_parameters()]
    depth = model.config.to_dict().get("decoder_layers", 0) - 1
    candidates = [
        "decoder.final_layer_norm.",
        "model.decoder.layer_norm.",
        f"model.decoder.layers.{depth}.final_layer_norm.",
    ]
    prefix = next(one for one in candidates if any(name.startswith(one) for name in names))
    return [one for name, one in model.named_parameters() if name.startswith(prefix)]


@torch.no_grad()
def _make_outputs_end(model: Any) -> None:
    """Raise the logit of END by a constant, or along the mean of the last vectors."""
    config = model.config
    head = (
        model.model.decoder.output_projection if "FSMT" in type(model).__name__ else model.lm_head
    )
    seen: list[torch.Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].flatten(0, 1)))
    sizes = source_and_target_sizes(config)
    source, prefix = (torch.randint(0, size, (8, 12)) for size in sizes)
    logits = model(input_ids=source, decoder_input_ids=prefix, use_cache=False).logits.flatten(0, 1)
    hook.remove()
    end = config.eos_token_id
    others = torch.cat([logits[:, :end], logits[:, end + 1 :]], 1).logsumexp(1)
    missing = float((others - logits[:, end]).mean()) - END_GAP
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias[0, end] += missing
    else:
        mean = seen[0].mean(0)
        head.weight[end] += missing * mean / mean.square().sum()


def source_and_target_sizes(config: Any) -> tuple[int, int]:
    """The vocabulary sizes of a model."""
    source = getattr(config, "src_vocab_size", None) or config.vocab_size
    target = getattr(config, "tgt_vocab_size", None) or config.vocab_size
    return source, getattr(config, "decoder_vocab_size", None) or target


def write_folder(model: Any, folder: Path, **options: Any) -> None:
    """Save a model, and a tokenizer whose tokens are whole words: the text of id 7 is w7."""
    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    values = model.config.to_dict()
    tokens = {role: values.get(role) for role in (*SPECIAL, "decoder_start_token_id")}
    size = max(source_and_target_sizes(model.config))
    names = {id: f"w{id}" for id in range(size)}
    names |= {
        id: SPECIAL[role] for role, id in tokens.items() if id is not None and role in SPECIAL
    }
    used = {id for id in tokens.values() if id is not None}
    common = range(min(source_and_target_sizes(model.config)))
    unknown = next((id for id in common if id not in used), values["eos_token_id"])
    names[unknown] = "<unk>"
    definition: dict[str, Any] = {
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {
            "type": "WordLevel",
            "vocab": {name: id for id, name in names.items()},
            "unk_token": "<unk>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition))


def _bart_model(name: str, size: int) -> Any:
    kind, options = BART_FAMILIES[name]
    sizes = dict(BART_SIZES[size])
    heads, layers, ffn = sizes.pop("heads"), sizes.pop("layers"), sizes.pop("ffn")
    vocabulary = sizes["vocab_size"]
    tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    if name.startswith("marian"):
        last = vocabulary - 1
        tokens = {"pad_token_id": last, "eos_token_id": 0, "decoder_start_token_id": last}
        tokens["forced_eos_token_id"] = 0
        if name != "marian":
            options = {**options, "decoder_vocab_size": vocabulary + 5}
    elif name == "blenderbot":
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        tokens["decoder_start_token_id"] = 1
    elif name == "pegasus":
        tokens = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    elif name == "fsmt":
        sizes["src_vocab_size"] = sizes.pop("vocab_size") + 3
        sizes["tgt_vocab_size"] = vocabulary
        options = {**options, "langs": ["en", "de"]}
    config = getattr(transformers, kind).config_class(
        **sizes,
        **tokens,
        **{
            "encoder_layers": layers[0],
            "decoder_layers": layers[1],
            "encoder_ffn_dim": ffn[0],
            "decoder_ffn_dim": ffn[1],
            "encoder_attention_heads": heads,
            "decoder_attention_heads": heads,
            "max_position_embeddings": LENGTH,
            "dropout": 0.0,
            **options,
        },
    )
    return getattr(transformers, kind)(config)


def _t5_model(name: str, size: int) -> Any:
    kind, options = T5_FAMILIES[name]
    config = getattr(transformers, kind).config_class(
        **{**T5_SIZES[size], "relative_attention_num_buckets": 8, "dropout_rate": 0.0,
           "relative_attention_max_distance": 20, "decoder_start_token_id": 0, **options}
    )  # fmt: skip
    return getattr(transformers, kind)(config)
