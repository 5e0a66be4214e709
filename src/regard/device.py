"""Devices: selection, precision, and a bypass of oneDNN for small products on ARM CPUs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

from regard.errors import RegardError


def resolve_device(name: str | torch.device) -> torch.device:
    """The device of that name ("auto": the GPU if there is one); raises if it is not available."""
    name = str(name)
    has_gpu = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if has_gpu else "cpu"
    if name.startswith("cuda") and not has_gpu:
        raise RegardError(f"device {name!r} is not available: torch finds no GPU; use --device cpu")
    try:
        device = torch.device(name)
        # Only a device that exists can copy a tensor back to the host.
        torch.empty(0, device=device, dtype=torch.uint8).numpy(force=True)
    except (RuntimeError, NotImplementedError, AssertionError):
        raise RegardError(f"device {name!r} is not available; use cpu or cuda") from None
    return device


def supports_bfloat16(device: torch.device) -> bool:
    """Whether a device has bfloat16 arithmetic; torch emulates it elsewhere, slowly."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def resolve_precision(requested: str, device: torch.device) -> tuple[str, str]:
    """The precision that a device computes in, and a line of explanation if it is another than
    requested. On a GPU, "auto" is bfloat16 where the GPU has it."""
    if requested == "auto":
        return "bfloat16" if device.type == "cuda" and supports_bfloat16(device) else "float32", ""
    if requested == "bfloat16" and device.type == "cpu" and not supports_bfloat16(device):
        note = "float32 instead of bfloat16: this CPU has no bfloat16 arithmetic (train.precision)"
        return "float32", note
    return requested, ""


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
