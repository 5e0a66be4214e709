"""Tiny random bundles for tests of exports."""

from typing import Any

import torch

from regard.bundle import Bundle
from regard.config import ModelSettings, parse
from regard.models import build
from regard.text import train_tokenizer
from regard.text.template import DEFAULT_TEMPLATE, Template

TINY = {
    "kind": "transformer",
    "width": 16,
    "heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "ffn_width": 24,
}
WORDS = ["ab c", "dé f", "gh", "ijkl m"]
CARD = {"longest": {"source": 12, "target": 9}, "samples": [["ab c", "x", "y"]], "task": "symbols"}


# Other special tokens than Regard's own: a language before the source and after the start token.
FOREIGN = Template(
    end=4, start=(2, 3), source_prefix=(3,), source_suffix=(4,), banned=(1, 5), unknown=0
)


def random_bundle(
    *,
    seed: int = 0,
    shared: bool = False,
    template: Template = DEFAULT_TEMPLATE,
    **settings: Any,
) -> Bundle:
    """A model whose weights are all random, biases and position tables included."""
    torch.manual_seed(seed)
    source, target = train_tokenizer("characters", WORDS), train_tokenizer("words", WORDS)
    if shared or settings.get("tie_embeddings") in ("all", "inputs"):
        target = source
    sizes = TINY if settings.get("kind", "transformer") == "transformer" else {}
    made = parse(ModelSettings, {**sizes, **settings}, "model")
    model = build(made, len(source), len(target)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            elif name.endswith("bias.table"):  # relative tables start at zero
                parameter.copy_(torch.randn_like(parameter))
            else:
                parameter.mul_(1.5)
    return Bundle(model, source, target, made, CARD, template=template)
