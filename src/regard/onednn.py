"""Matrix products on a CPU, without a detour."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

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
    _DETOUR.close()
    try:
        yield
    finally:
        _DETOUR.open()


class _Detour:
    """torch's switch for oneDNN, which is the process's: the first thread inside closes it, the last out opens it."""

    def __init__(self) -> None:
        self.switch: Any = torch.backends.mkldnn  # torch does not say the types of its switches
        self.lock, self.inside, self.before = Lock(), 0, True

    def close(self) -> None:
        with self.lock:
            if not self.inside:
                self.before = self.switch.enabled
            self.switch.enabled = False
            self.inside += 1

    def open(self) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.switch.enabled = self.before


_DETOUR = _Detour()
