"""Products without oneDNN: on ARM only, only inside, and the same numbers."""

from contextlib import suppress

import pytest
import torch

from regard import onednn as products
from regard.onednn import bypass_onednn


@pytest.mark.parametrize("arm", [True, False])
def test_onednn_is_off_inside_on_arm_and_as_before_after(arm, monkeypatch):
    monkeypatch.setattr(products, "ARM", arm)
    before = torch.backends.mkldnn.enabled
    with bypass_onednn():
        with bypass_onednn():
            assert torch.backends.mkldnn.enabled == (before and not arm)
        assert torch.backends.mkldnn.enabled == (before and not arm)
    assert torch.backends.mkldnn.enabled == before


def test_onednn_is_back_after_an_error(monkeypatch):
    monkeypatch.setattr(products, "ARM", True)
    before, fault = torch.backends.mkldnn.enabled, KeyError()
    with suppress(KeyError), bypass_onednn():
        raise fault
    assert torch.backends.mkldnn.enabled == before


def test_products_stay_what_they_are():
    x, weight = torch.randn(13, 7), torch.randn(5, 7)
    with bypass_onednn():
        ours = x @ weight.T
    torch.testing.assert_close(ours, x @ weight.T)
