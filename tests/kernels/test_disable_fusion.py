"""`disable_fusion` turns off all fused kernels, to compare with the plain definition."""

import pytest
import torch

from regard import kernels
from regard.kernels import can_fuse, disable_fusion


def test_fused_kernels_are_off_inside_the_block(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_INSTALLED", True)
    monkeypatch.setattr(kernels, "_INTERPRETED", True)
    rows = torch.ones(2, 8)
    assert can_fuse(rows)
    with disable_fusion():
        assert not can_fuse(rows)
        with disable_fusion():
            assert not can_fuse(rows)
        assert not can_fuse(rows)
    assert can_fuse(rows)
    with pytest.raises(KeyError), disable_fusion():
        raise KeyError
    assert can_fuse(rows)
