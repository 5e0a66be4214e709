"""Kernels under Triton's interpreter run behind a fence."""

import pytest

from regard.attention.backends import triton
from tests.gpu.fence import fenced


@pytest.fixture(autouse=True)
def _fence():
    if not triton.interpreted():
        yield
        return
    with fenced():
        yield
