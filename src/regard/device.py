"""Selection of the device on which a model runs."""

from __future__ import annotations

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
