"""The families of Hugging Face models by the `model_type` of their configuration.

A family converts settings and weights. Known models that are not encoder–decoders for text are
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable

from regard.errors import suggestion
from regard.hub.bart_checkpoint import BART, BLENDERBOT, FSMT, M2M100, MARIAN, MBART, PEGASUS
from regard.hub.checkpoint_config import CheckpointConfig
from regard.hub.checkpoint_tensors import CheckpointTensors, ConvertedCheckpoint
from regard.hub.t5_checkpoint import MT5_CHECKPOINT, T5_CHECKPOINT

Family = Callable[[CheckpointConfig, CheckpointTensors], ConvertedCheckpoint]

FAMILIES: dict[str, Family] = {
    "marian": MARIAN,
    "bart": BART,
    "mbart": MBART,
    "m2m_100": M2M100,
    "pegasus": PEGASUS,
    "blenderbot": BLENDERBOT,
    "fsmt": FSMT,
    "t5": T5_CHECKPOINT,
    "mt5": MT5_CHECKPOINT,
}
DECODERS = (
    "bloom codegen cohere falcon gemma gemma2 gemma3 gemma3_text gpt2 gpt_neo gpt_neox gpt_oss "
    "gptj granite llama mamba mamba2 mistral mixtral mpt olmo olmo2 opt phi phi3 qwen2 qwen3 "
    "smollm3 stablelm xglm"
)
ENCODERS = (
    "albert bert camembert deberta deberta-v2 distilbert electra ernie eurobert mobilebert "
    "modernbert mpnet roberta squeezebert xlm-roberta xlm-roberta-xl"
)
REFUSED = {
    **dict.fromkeys(DECODERS.split(), "a decoder-only model"),
    **dict.fromkeys(ENCODERS.split(), "an encoder-only model"),
    "blenderbot-small": "a model whose decoder adds positions after the embedding norm",
    "umt5": "a T5 with a table of position biases in every layer",
    "led": "a model with sparse attention",
    "longt5": "a model with sparse attention",
    "bigbird_pegasus": "a model with sparse attention",
    "pegasus_x": "a model with sparse attention",
    "prophetnet": "a model that predicts several tokens at once",
    "encoder-decoder": "a combination of two other models",
    "nllb-moe": "a mixture of experts",
    "switch_transformers": "a mixture of experts",
    "whisper": "a speech model",
    "speech_to_text": "a speech model",
}


def find_family(config: CheckpointConfig) -> tuple[str, Family]:
    """The name and the family of a checkpoint; raises if it is not supported."""
    name = config.get("model_type")
    known = ", ".join(FAMILIES)
    if not isinstance(name, str):
        raise config.error("model_type", f"must be one of {known}", name)
    if name in REFUSED:
        raise config.folder.error(
            f"{name!r} is {REFUSED[name]}", f"choose an encoder–decoder: {known}"
        )
    if name not in FAMILIES:
        raise config.folder.error(f"unknown model_type {name[:80]!r}", suggestion(name, FAMILIES))
    return name, FAMILIES[name]
