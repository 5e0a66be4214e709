"""Kernels of our own can be left out, all together, to compare with the plain definition."""

import pytest
import torch

from regard import kernels
from regard.kernels import fusible, unfused


def test_inside_no_kernel_of_ours_is_taken_and_afterwards_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_INSTALLED", True)
    monkeypatch.setattr(kernels, "_INTERPRETED", True)
    rows = torch.ones(2, 8)
    assert fusible(rows)
    with unfused():
        assert not fusible(rows)
        with unfused():
            assert not fusible(rows)
        assert not fusible(rows)
    assert fusible(rows)
    with pytest.raises(KeyError), unfused():
        raise KeyError
    assert fusible(rows)
