"""Automatic base and big models: by the amount of text, the length of the run and the memory."""

import pytest
import torch

from regard.config import ModelSettings, TrainSettings, parse
from regard.models import FAMILIES
from regard.models.meta_model import build_on_meta
from regard.training import big_size
from regard.training.auto_settings import DataFacts
from regard.training.big_size import BIG_MEMORY, BIG_RUN, BIG_TEXT

LARGE = 80 * 2**30  # bytes of a GPU
EIGHT, SIXTEEN, TWENTY_FOUR = (gigabytes * 2**30 for gigabytes in (8, 16, 24))


def size(tokens: float, *, memory: int = LARGE, gpus: int = 1, text=True, cpu=False, **length):
    """The size that is chosen; `memory` 0 is a GPU that does not say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(big_size, "gpu_memory", lambda: memory)
        patch.setattr(big_size, "gpu_count", lambda: gpus)
        train = TrainSettings(**length)
        given = train.minutes, train.steps, train.epochs
        return DataFacts(int(tokens), text, not cpu, *given).choose_size()


@pytest.mark.parametrize(
    ("tokens", "options", "expected"),
    [
        (19e6, {"epochs": 1000}, "small"),
        (21e6, {"epochs": 1000}, "base"),  # too little text for a big model
        (1e9, {}, "base"),  # no length is given: it reads 3 · 10⁹ tokens
        (1e10, {}, "base"),
        (1e9, {"epochs": 4}, "base"),  # 4 · 10⁹ tokens
        (1e9, {"epochs": 6}, "big"),
        (0.3e9, {"epochs": 20}, "big"),
        (1e9, {"steps": 100_000}, "base"),  # of 25,000 tokens: 2.5 · 10⁹
        (1e9, {"steps": 240_000}, "big"),
        (1e9, {"minutes": 60}, "base"),  # 0.8 · 10⁹ tokens
        (1e9, {"minutes": 600}, "big"),
        (1e9, {"minutes": 60, "gpus": 8}, "big"),
        (1e9, {"epochs": 6, "memory": EIGHT}, "base"),
        (1e9, {"epochs": 6, "memory": SIXTEEN}, "base"),
        (1e9, {"epochs": 6, "memory": TWENTY_FOUR}, "big"),
        (1e9, {"epochs": 6, "memory": 0}, "base"),
        (1e9, {"epochs": 6, "text": False}, "base"),  # single symbols
        (25e6, {"epochs": 6, "cpu": True}, "tiny"),
        (1e9, {"epochs": 6, "cpu": True}, "tiny"),
    ],
)
def test_big_needs_text_time_and_memory(tokens, options, expected):
    assert size(tokens, **options) == expected


@pytest.mark.parametrize("tokens", [1e3, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10])
@pytest.mark.parametrize("length", [{}, {"minutes": 1e6}, {"epochs": 100}, {"steps": 10**7}])
@pytest.mark.parametrize("text", [True, False])
def test_a_cpu_never_gets_base(tokens, length, text):
    assert size(tokens, cpu=True, text=text, **length) in ("tiny", "mini", "small")


def test_the_limits_follow_from_the_number_of_weights():
    presets = FAMILIES["transformer"].presets
    counts = {}
    for name in ("base", "big"):
        settings = parse(ModelSettings, {"kind": "transformer", **presets[name]}, "model")
        model = build_on_meta(settings, 32_000, 32_000)
        embeddings = 32_000 * presets[name]["width"]
        counts[name] = sum(weight.numel() for weight in set(model.parameters()))
        counts[f"{name} layers"] = counts[name] - embeddings * round(
            sum(w.numel() for w in set(model.parameters()) if 32_000 in w.shape) / embeddings
        )
    assert counts["big layers"] == pytest.approx(4 * counts["base layers"], rel=0.01)
    assert 20 * counts["big layers"] < BIG_RUN < 30 * counts["big layers"]
    assert 22 * counts["big"] < 0.4 * BIG_MEMORY  # with separate embeddings, too
    assert BIG_TEXT < BIG_RUN / 15


def test_without_a_gpu_there_is_no_memory():
    if not torch.cuda.is_available():
        assert big_size.gpu_memory() == 0
    assert big_size.gpu_count() == 1
