"""Matrix products on a CPU, without a detour."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

ARM = platform.machine().lower() in ("aarch64", "arm64")


@contextmanager
def plain_products() -> Iterator[None]:
    """Inside, float32 products on an ARM processor go to BLAS at once.

    There torch sends them through oneDNN, which prepares each new shape for about 0.1 ms: several times what a small
    product takes, and large ones gain nothing. Elsewhere nothing changes. Not for bfloat16: only oneDNN is fast in it.
    """
    onednn: Any = torch.backends.mkldnn  # torch does not say the types of its switches
    before = onednn.enabled
    onednn.enabled = before and not ARM
    try:
        yield
    finally:
        onednn.enabled = before
