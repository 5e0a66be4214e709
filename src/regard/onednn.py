"""A bypass of oneDNN for small float32 matrix products on ARM CPUs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

ARM = platform.machine().lower() in ("aarch64", "arm64")


@contextmanager
def bypass_onednn() -> Iterator[None]:
    """Inside this block, float32 matrix products on an ARM CPU use BLAS directly.

    By default torch calls oneDNN there, which spends about 0.1 ms preparing each new shape: several
    times the cost of a small product, without a gain for large ones. No effect on other CPUs. Do
    not use it for bfloat16, where only oneDNN is fast.
    """
    if not ARM:
        yield
        return
    _SWITCH.disable()
    try:
        yield
    finally:
        _SWITCH.restore()


class _OneDnnSwitch:
    """Reference-counted use of torch's process-wide oneDNN flag: the first thread disables it, the
    last one restores it."""

    def __init__(self) -> None:
        self.flags: Any = torch.backends.mkldnn  # untyped in torch
        self.lock = Lock()
        self.users = 0
        self.before = True

    def disable(self) -> None:
        with self.lock:
            if not self.users:
                self.before = self.flags.enabled
            self.flags.enabled = False
            self.users += 1

    def restore(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.flags.enabled = self.before


_SWITCH = _OneDnnSwitch()
