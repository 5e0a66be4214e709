"""The out-of-bounds checker of Triton's interpreter reports the first address past a tensor."""

import pytest
import torch

from regard.attention.backends import triton as backend

pytestmark = pytest.mark.skipif(not backend.is_interpreted(), reason="needs TRITON_INTERPRET=1")


def copy_numbers(count: int) -> torch.Tensor:
    """The first `count` of ten numbers, by a kernel that does not know there are ten."""
    import triton
    import triton.language as tl

    @triton.jit
    def copy(source, target, count, size: tl.constexpr):
        place = tl.arange(0, size)
        tl.store(target + place, tl.load(source + place, mask=place < count), mask=place < count)

    source, target = torch.arange(10.0), torch.zeros(10)
    copy[(1,)](source, target, count, size=16)
    return target


def test_accesses_inside_the_tensors_pass():
    assert copy_numbers(10).tolist() == list(range(10))


def test_an_access_out_of_bounds_is_an_error():
    with pytest.raises(Exception, match="copy reads 1 of 11 addresses out of bounds"):
        copy_numbers(11)
