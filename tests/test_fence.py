"""The fence itself: a kernel that keeps to its tensors passes, one that goes a step further does
not.
"""

import pytest
import torch

from regard.attention.backends import triton as backend

pytestmark = pytest.mark.skipif(not backend.is_interpreted(), reason="needs TRITON_INTERPRET=1")


def copied(count: int) -> torch.Tensor:
    """The first so many of ten numbers, by a kernel that does not ask whether they are there."""
    import triton
    import triton.language as tl

    @triton.jit
    def copy(source, target, count, size: tl.constexpr):
        place = tl.arange(0, size)
        tl.store(target + place, tl.load(source + place, mask=place < count), mask=place < count)

    source, target = torch.arange(10.0), torch.zeros(10)
    copy[(1,)](source, target, count, size=16)
    return target


def test_inside_it_says_nothing():
    assert copied(10).tolist() == list(range(10))


def test_one_step_outside_is_told():
    with pytest.raises(Exception, match="copy reads 1 of 11 places outside"):
        copied(11)
