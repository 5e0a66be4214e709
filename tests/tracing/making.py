"""Small random models of every kind to look into, with tokenisers of a few symbols."""

import torch

from regard.bundle import Bundle
from regard.config import Recurrent, Transformer
from regard.models import build
from regard.text import train_tokenizer
from regard.transducer import Transducer

SMALL = {"width": 12, "heads": 4, "encoder": 2, "decoder": 1, "hidden": 10}
KINDS = {
    "none": Transformer(**SMALL, position="none", activation="relu", tied="none"),
    "sinusoidal": Transformer(**SMALL, position="sinusoidal", activation="relu", placement="post"),
    "learned": Transformer(**SMALL, position="learned", activation="gelu", norm="rms"),
    "rotary": Transformer(**SMALL | {"width": 24}, position="rotary", activation="swiglu", groups=2),
    "alibi": Transformer(**SMALL, position="alibi", placement="post", norm="rms"),
    "distance": Transformer(**SMALL, position="distance"),
    "t5": Transformer(**SMALL, position="t5", activation="gelu"),
    "shaw": Transformer(**SMALL, position="shaw", groups=2),
    "bottleneck": Recurrent(width=8, attention="none", encoder=2),
    "additive": Recurrent(width=8, attention="additive", decoder=2),
    "additive-lstm": Recurrent(width=8, attention="additive", cell="lstm", encoder=2),
    "dot": Recurrent(width=8, attention="dot", decoder=2, cell="lstm"),
    "general": Recurrent(width=8, attention="general", tied="none"),
    "concat": Recurrent(width=8, attention="concat"),
}
ATTENDING = [kind for kind in KINDS if kind != "bottleneck"]
TRANSFORMERS = [kind for kind, settings in KINDS.items() if isinstance(settings, Transformer)]


def made(kind: str) -> Transducer:
    """Random weights, biases and gains too, so that no term is invisible."""
    torch.manual_seed(5)
    source, target = train_tokenizer("characters", ["abandon zebra"]), train_tokenizer("words", ["AH B AE N Z IY"])
    model = build(KINDS[kind], len(source), len(target)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return Transducer(Bundle(model, source, target, KINDS[kind], {"longest": {"source": 9, "target": 7}}))
