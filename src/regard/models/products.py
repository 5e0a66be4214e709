"""Matrix products on a CPU, without a detour."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

# The switch is the process's: of several threads the first inside turns it off, and the last outside on again.
_LOCK, _INSIDE, _BEFORE = Lock(), list[None](), list[bool]()
ARM = platform.machine().lower() in ("aarch64", "arm64")


@contextmanager
def plain_products() -> Iterator[None]:
    """Inside, float32 products on an ARM processor go to BLAS at once.

    There torch sends them through oneDNN, which prepares each new shape for about 0.1 ms: several times what a small
    product takes, and large ones gain nothing. Elsewhere nothing changes. Not for bfloat16: only oneDNN is fast in it.
    """
    if not ARM:
        yield
        return
    onednn: Any = torch.backends.mkldnn  # torch does not say the types of its switches
    with _LOCK:
        if not _INSIDE:
            _BEFORE.append(onednn.enabled)
        _INSIDE.append(None)
        onednn.enabled = False
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE.pop()
            if not _INSIDE:
                onednn.enabled = _BEFORE.pop()
