"""Recurrent models on the native engine against torch: cells, attentions and scores."""

from typing import Any

import pytest

from regard.native import NativeOptions
from regard.search import Beam, Greedy, LengthPenalty
from tests.native.native_models import TINY_RECURRENT, assert_same_results, random_pair

VARIANTS: list[dict[str, Any]] = [
    {"cell": cell, "attention": attention, "score": score}
    for cell in ("gru", "lstm")
    for attention, score in (
        ("bahdanau", "additive"),
        ("bahdanau", "general"),
        ("luong", "dot"),
        ("luong", "scaled-dot"),
        ("luong", "additive"),
        ("none", "additive"),
    )
]
VARIANTS += [
    {"encoder_layers": 2, "decoder_layers": 3},
    {"encoder_layers": 3, "decoder_layers": 2, "cell": "lstm", "attention": "luong"},
    {"width": 22},
    {"tie_embeddings": "none"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variants(variant: dict[str, Any]):
    model, native = random_pair({**TINY_RECURRENT, **variant})
    assert_same_results(model, native, Greedy(), NativeOptions())
    options = NativeOptions(beam=4, n_best=3, length_penalty=0.7)
    assert_same_results(model, native, Beam(4, 3, LengthPenalty(0.7)), options)
