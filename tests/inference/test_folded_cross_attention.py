"""Folded cross-attention of a single source equals teacher forcing."""

import pytest
import torch

from regard.inference import inference_model, packed_layer
from regard.positions import POSITIONS
from tests.contracts.model_cases import make
from tests.models.tracked_decoding import TrackedDecoding, random_batch

MODELS = [f"transformer-{kind}-{name}" for name in POSITIONS for kind in ("position", "post-norm")]
MODELS += [f"transformer-{name}" for name in ("dim-large", "no-biases", "like-bart", "like-t5")]


def decode(name: str, *lengths: int) -> TrackedDecoding:
    """Decoding of sources of these lengths by the fast engine."""
    return TrackedDecoding(inference_model(make(name), "fast"), random_batch(list(lengths)))


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_single_rows_and_beams_use_the_folded_source(name: str):
    decoding = decode(name, 6)
    assert decoding.state.folded is not None
    decoding.step()
    decoding.branch([0, 0, 0])
    decoding.step()
    decoding.branch([2, 0])
    assert decoding.state.folded is not None
    decoding.step()
    decoding.select([1, 0, 1])  # each with a source of its own
    assert decoding.state.folded is None
    decoding.step()


@torch.no_grad()
def test_a_source_is_folded_only_where_that_is_less_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed_layer, "CALL_COST", 0)
    folded, unfolded = (decode("transformer-position-none", time) for time in (12, 13))
    assert folded.state.folded is not None  # 12 · 2 · 12 = 12 · (12 + 12) multiply-adds
    assert unfolded.state.folded is None  # 12 · 2 · 13 > 12 · (12 + 13)
    unfolded.step()


@torch.no_grad()
def test_several_sources_are_not_folded():
    assert decode("transformer-position-none", 3, 3).state.folded is None
