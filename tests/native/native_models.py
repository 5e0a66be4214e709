"""Tiny random models, in torch and on the native engine, and their comparison."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.bundle.model_files import unique_parameters
from regard.config import ModelSettings, parse
from regard.inference import search_all
from regard.models import Model, build
from regard.native import NativeModel, NativeOptions
from regard.search import Search, SearchResult, length_limits

SIZES = (11, 13)
TINY = {
    "kind": "transformer",
    "width": 16,
    "heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "ffn_width": 24,
}
TINY_RECURRENT = {"kind": "recurrent", "width": 12}
LIMIT = 12
TOLERANCE = 1e-4


def random_pair(
    settings: dict[str, Any], *, seed: int = 0, sizes: tuple[int, int] = SIZES, **native: Any
) -> tuple[Model, NativeModel]:
    """A torch model with random weights, biases included, and its native counterpart."""
    torch.manual_seed(seed)
    model = build(parse(ModelSettings, settings, "model"), *sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.mul_(1.5)
        for name, parameter in model.named_parameters():
            if name.endswith("bias.table"):  # relative tables start at zero
                parameter.copy_(torch.randn_like(parameter))
    return model, native_copy(model, sizes, **native)


def native_copy(model: Model, sizes: tuple[int, int] = SIZES, **native: Any) -> NativeModel:
    """A torch model on the native engine."""
    weights = {name: tensor.detach().numpy() for name, tensor in unique_parameters(model).items()}
    settings: Any = model.settings
    return NativeModel(settings.model_dump(mode="json"), sizes, weights, **native)


def random_sources(count: int = 12, longest: int = 9, size: int = SIZES[0]) -> list[list[int]]:
    """Random sources of different lengths."""
    chance = torch.Generator().manual_seed(7)
    lengths = torch.randint(1, longest + 1, (count,), generator=chance).tolist()
    return [torch.randint(3, size, (n,), generator=chance).tolist() for n in lengths]


def limits_of(sources: Sequence[Sequence[int]], most: int = LIMIT) -> list[int]:
    """The limits that `search_all` uses."""
    return length_limits(torch.tensor([len(ids) + 1 for ids in sources]), most).tolist()


def assert_same_results(
    model: Model, native: NativeModel, search: Search, options: NativeOptions, **more: Any
) -> None:
    """The native engine finds what torch finds, except where torch itself is undecided."""
    sources = more.get("sources") or random_sources()
    most = more.get("most", LIMIT)
    expected = search_all(search, model, sources, max_length=most)
    found = native.search(sources, limits_of(sources, most), options)
    compared = 0
    for ours, theirs in zip(found, expected, strict=True):
        if is_undecided(theirs):
            continue
        compared += 1
        assert [one.ids for one in ours] == [list(one.ids) for one in theirs.hypotheses]
        for one, other in zip(ours, theirs.hypotheses, strict=True):
            torch.testing.assert_close(
                torch.tensor([*one.logps, one.score]),
                torch.tensor([*other.logps, other.score]),
                rtol=0,
                atol=TOLERANCE,
            )
    assert compared >= len(sources) / 2


def is_undecided(result: SearchResult) -> bool:
    """Whether rounding could change torch's own result."""
    return result.margin < TOLERANCE
