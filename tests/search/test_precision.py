"""What searches compute in, as people ask for it."""

import pytest
import torch

import regard
from regard.errors import RegardError


def test_searches_in_bfloat16_say_nearly_the_same():
    words = ["attention", "regard", "spelling", "model"]
    exact, rough = (
        regard.load("spelling", device="cpu", precision=name) for name in ("float32", "bfloat16")
    )
    assert rough.inference_model.tables[0].dtype == torch.bfloat16
    assert (
        rough.model.source.table.dtype == torch.float32
    )  # scores and weights are the plain model's
    for one, other in zip(exact.many(words), rough.many(words), strict=True):
        assert one.text == other.text
        assert one.logps != other.logps
        assert one.logp == pytest.approx(other.logp, abs=0.1)


def test_an_unknown_precision_is_named():
    with pytest.raises(RegardError, match="precision 'bfloat'; did you mean 'bfloat16'"):
        regard.load("spelling", device="cpu", precision="bfloat")
