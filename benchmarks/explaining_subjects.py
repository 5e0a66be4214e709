"""Random subjects of `explaining.py`: models of all families and parts, texts, edits, traces."""

import random
from dataclasses import dataclass
from typing import Any

import torch

from regard.attention.normalisers import NORMALISERS, PHI
from regard.attention.scores import SCORES
from regard.bundle import Bundle
from regard.config import RecurrentSettings, TransformerSettings
from regard.errors import RegardError
from regard.models import build
from regard.pipeline import Pipeline
from regard.positions import POSITIONS
from regard.search import Greedy
from regard.text import train_tokenizer
from regard.trace import Trace, record

LETTERS, WORDS = "abdenorz", ["AH", "B", "AE", "N", "Z", "IY", "R"]
ACTIVATIONS = ["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"]
FAMILIES = ("transformer", "bahdanau", "luong", "none")
EDITS = (
    *("force", "row", "ablate-zero", "ablate-mean", "ablate-uniform", "unscaled", "unmasked"),
    *("unpositioned", "shuffled", "temperature-out", "temperature-attention", "patch"),
)


@dataclass
class Subject:
    """A trace of a random model, its settings and the kinds of its edits."""

    trace: Trace
    family: str
    position: str
    phi: str  # the kernel of its normaliser, "" for others
    edits: tuple[str, ...]
    parameters: dict[str, torch.Tensor]

    def lookup(self, kind: str, name: str, index: tuple[int, ...]) -> float:
        """The number of a tensor or a parameter."""
        held = self.trace[name] if kind == "tensor" else self.parameters[name]
        return float(held[index])


def normaliser(draw: random.Random) -> Any:
    """A normaliser; softmax in half of all models."""
    kind = "softmax" if draw.random() < 0.5 else draw.choice(list(NORMALISERS))
    if kind == "positive":
        return {"kind": kind, "phi": draw.choice(list(PHI))}
    if kind == "entmax":
        return {"kind": kind, "alpha": draw.choice([1.1, 1.25, 1.5, 1.8])}
    return kind


def position(draw: random.Random) -> Any:
    """A position encoding, some with options."""
    kind = draw.choice(list(POSITIONS))
    options: dict[str, list[dict[str, Any]]] = {
        "rotary": [{"pairs": "neighbours"}, {"fraction": 0.5}, {"scaling": "ntk", "factor": 2.0}],
        "t5": [{"buckets": 4, "max_distance": 3}],
        "distance": [{"max_distance": 2}],
        "shaw": [{"max_distance": 2}],
    }
    chosen = draw.choice([{}, *options.get(kind, [])])
    return {"kind": kind, **chosen} if chosen else kind


def settings(draw: random.Random, family: str) -> TransformerSettings | RecurrentSettings:
    """Settings of a tiny model."""
    tied = draw.choice(["none", "target"])
    if family != "transformer":
        score = draw.choice(["additive", "dot", "general", "cosine", "gaussian", "scaled-dot"])
        return RecurrentSettings(
            width=draw.choice([8, 10]),
            attention=family,
            cell=draw.choice(["gru", "lstm"]),
            score=score,
            normaliser=normaliser(draw),
            encoder_layers=draw.choice([1, 2]),
            decoder_layers=draw.choice([1, 2]),
            tie_embeddings=tied,
        )
    return TransformerSettings(
        width=16,
        heads=4,
        kv_heads=draw.choice([None, 2, 1]),
        encoder_layers=draw.choice([1, 2]),
        decoder_layers=draw.choice([1, 2]),
        ffn_width=10,
        position=position(draw),
        score="scaled-dot" if draw.random() < 0.5 else draw.choice(list(SCORES)),
        normaliser=normaliser(draw),
        window=draw.choice([None, None, 2, 3]),
        norm=draw.choice(["layer", "rms"]),
        norm_order=draw.choice(["pre", "post"]),
        activation=draw.choice(ACTIVATIONS),
        biases=draw.random() < 0.7,
        embedding_norm=draw.random() < 0.2,
        output_bias=draw.random() < 0.3,
        tie_embeddings=tied,
    )


def model(draw: random.Random, chosen: TransformerSettings | RecurrentSettings) -> Pipeline:
    """Random weights, biases and gains too, so that no term is invisible."""
    torch.manual_seed(draw.randrange(2**31))
    source = train_tokenizer("characters", [LETTERS])
    target = train_tokenizer("words", [" ".join(WORDS)])
    made = build(chosen, len(source), len(target)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return Pipeline(Bundle(made, source, target, chosen, {"longest": {"source": 9, "target": 7}}))


def edit(draw: random.Random, kind: str, plain: Trace) -> dict[str, Any]:
    """A random edit of one kind for the model of a trace."""
    one = draw.choice(plain.attentions) if plain.attentions else None
    name = "" if one is None else one.name
    head = 0 if one is None else draw.randrange(one.heads)
    if kind.startswith("ablate"):
        by = kind.removeprefix("ablate-")
        return {"kind": "ablate", "attention": name, "head": head, "by": by}
    if kind == "row":
        _, queries, keys = plain[f"{name}.weights"].shape if name else (0, 1, 1)
        weights = [round(draw.random(), 3) for _ in range(keys)]
        query = draw.randrange(queries)
        return {"kind": "row", "attention": name, "head": head, "query": query, "weights": weights}
    if kind == "force":
        step = draw.randrange(max(1, len(plain.target) - 1))
        return {"kind": "force", "step": step, "token": draw.randrange(3, 3 + len(WORDS))}
    if kind == "shuffled":
        return {"kind": kind, "seed": draw.randrange(99)}
    if kind.startswith("temperature"):
        at = "out" if kind.endswith("out") else name
        return {"kind": "temperature", "at": at, "value": draw.uniform(0.3, 3)}
    if kind == "patch":
        tensor = draw.choice([n for n in plain.names if n.startswith("dec.") and plain[n].ndim])
        return {
            "kind": kind,
            "name": tensor,
            "values": torch.randn(plain[tensor].shape, generator=seeded(draw)).tolist(),
        }
    return {"kind": kind}


def seeded(draw: random.Random) -> torch.Generator:
    """A generator of torch that a draw determines."""
    return torch.Generator().manual_seed(draw.randrange(2**31))


def subject(draw: random.Random) -> Subject:
    """A trace of a random model on a random text, edited in half of all cases."""
    family = draw.choices(FAMILIES, (6, 2, 2, 1))[0]
    chosen = settings(draw, family)
    pipeline = model(draw, chosen)
    source = "".join(draw.choice(LETTERS) for _ in range(draw.randint(1, 9)))
    target = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 7)))
    free = draw.random() < 0.2
    trace = record(pipeline, source, None if free else target, search=Greedy())
    kinds = draw.sample(EDITS, draw.randint(1, 4)) if draw.random() < 0.5 else []
    made: list[dict[str, Any]] = []
    used = []
    for kind in kinds:
        change = edit(draw, kind, trace)
        try:  # an edit that this model does not have is refused
            text = None if free and kind == "force" else trace.answer.text
            trace = record(pipeline, source, text, edits=[*made, change], max_length=9)
        except RegardError:
            continue
        made.append(change)
        used.append(kind)
    part = chosen.normaliser
    name = part if isinstance(part, str) else part["kind"]
    phi = part["phi"] if isinstance(part, dict) and name == "positive" else name
    phi = "softplus" if phi == "positive" else phi
    where = chosen.position if isinstance(chosen, TransformerSettings) else "recurrent"
    where = where if isinstance(where, str) else where["kind"]
    parameters = {key: value.detach() for key, value in pipeline.model.named_parameters()}
    return Subject(trace, family, where, phi, tuple(used), parameters)


def tensor_number(draw: random.Random, one: Subject) -> tuple[str, tuple[int, ...]]:
    """A random number of a trace; every operation is as likely as any other."""
    trace = one.trace
    by_kind: dict[str, list[str]] = {}
    for name in trace.names:
        by_kind.setdefault(trace.operation(name).kind, []).append(name)
    name = draw.choice(by_kind[draw.choice(sorted(by_kind))])
    return name, tuple(draw.randrange(size) for size in trace[name].shape)
