"""The models of the native benchmark: the included spelling model and a random base model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from native_baseline import CTranslate2, bundle_of

from regard import bundle
from regard.hub import write_ctranslate2
from regard.native import NativeModel, NativeOptions, read_tensors
from regard.pretrained import MODELS
from regard.training.cmudict import dictionary, part

LENGTH, VOCABULARY = 25, 8_000  # of the base model; END is one of the source's tokens
MOST = 66  # longest output of the small model


@dataclass
class Subject:
    """A model with its sources, on both engines in both precisions."""

    name: str
    settings: dict[str, Any]
    sizes: tuple[int, int]
    tensors: dict[str, np.ndarray]
    sources: list[list[int]]
    forced: int | None

    def native(self, *, int8: bool, threads: int = 1) -> Callable[..., list[list[int]]]:
        """A function from sources to outputs on the native engine."""
        model = NativeModel(self.settings, self.sizes, self.tensors, int8=int8)

        def run(sources: Sequence[Sequence[int]], *, beam: int) -> list[list[int]]:
            bounds = {"min_length": self.forced, "max_length": self.forced} if self.forced else {}
            options = NativeOptions(beam=beam, **bounds)
            limits = [self.forced or MOST] * len(sources)
            found = model.search(sources, limits, options, threads=threads)
            return [one[0].ids for one in found]

        return run

    def baseline(self, folder: Path, *, int8: bool) -> Callable[..., list[list[int]]]:
        """The same on CTranslate2."""
        home = folder / self.name
        converted = bundle_of(self.settings, self.sizes, self.tensors)
        if not home.exists():
            write_ctranslate2(converted, home)
        model = CTranslate2(home, converted, "int8" if int8 else "float32")
        return lambda sources, *, beam: model(sources, beam=beam, forced=self.forced, most=MOST)

    def products(self) -> tuple[int, int]:
        """Multiplications of one source token, and of one output token."""
        width, inner = self.settings["width"], 3 * self.settings["ffn_width"]
        encoder = self.settings["encoder_layers"] * width * (4 * width + inner)
        decoder = self.settings["decoder_layers"] * width
        memory = decoder * 2 * width
        return encoder + memory, decoder * (6 * width + inner) + width * self.sizes[1]


def small() -> Subject:
    """The included spelling model on words of the dictionary's test part."""
    home = Path(MODELS, "spelling")
    config = json.loads((home / "config.json").read_text())
    sizes = config["vocabulary"]["source"], config["vocabulary"]["target"]
    encode = bundle.load(home).source.encode
    words = sorted({word for word, _ in dictionary() if part(word) == "test"})
    random.Random(1).shuffle(words)
    sources = [encode(word) for word in words[:5_000]]
    tensors = read_tensors(home / "weights.safetensors")
    return Subject("small", config["model"], sizes, tensors, sources, None)


def base(like: Subject) -> Subject:
    """A random model of the base size; every output has LENGTH tokens."""
    settings = {**like.settings, "width": 512, "heads": 8, "ffn_width": 2048}
    settings |= {"encoder_layers": 6, "decoder_layers": 6}
    chance = np.random.default_rng(1)
    tensors: dict[str, np.ndarray] = {}
    for name, shape in _shapes(settings).items():
        random_values = chance.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
        is_vector = len(shape) == 1
        tensors[name] = np.full(shape, float(name.endswith("norm.weight")), np.float32)
        if not is_vector:
            tensors[name] = random_values
    sources = chance.integers(3, VOCABULARY, (64, LENGTH - 1)).tolist()
    sizes = (VOCABULARY, VOCABULARY)
    return Subject("base", settings, sizes, tensors, sources, LENGTH - 1)


def _shapes(settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    width, ffn = settings["width"], settings["ffn_width"]
    shapes: dict[str, tuple[int, ...]] = {}
    for side, prefix in (("source", "encoder"), ("target", "decoder")):
        shapes[f"{side}.table"] = VOCABULARY, width
        shapes[f"{prefix}_norm.weight"] = shapes[f"{prefix}_norm.bias"] = (width,)
        attentions = ("self",) if prefix == "encoder" else ("self", "cross")
        for index in range(settings[f"{prefix}_layers"]):
            layer = f"{prefix}.{index}"
            linear = {f"{layer}.feed_forward.inner": (2 * ffn, width)}
            linear[f"{layer}.feed_forward.outer"] = width, ffn
            for kind in attentions:
                for role in ("queries", "keys", "values", "out"):
                    linear[f"{layer}.{kind}_attention.{role}"] = width, width
            for name, shape in linear.items():
                shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
            for number in range(1, len(attentions) + 2):
                norm = f"{layer}.residual{number}.norm"
                shapes[f"{norm}.weight"] = shapes[f"{norm}.bias"] = (width,)
    return shapes
