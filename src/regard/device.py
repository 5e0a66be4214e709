"""Device: where a model computes."""

from __future__ import annotations

import torch

from regard.errors import RegardError


def placed(name: str | torch.device) -> torch.device:
    """The device of that name, or the best there is for "auto"; one line if it is not here."""
    name = str(name)
    here = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if here else "cpu"
    if name.startswith("cuda") and not here:
        raise RegardError("device 'cuda' is asked for, but torch sees no GPU; use --device cpu")
    try:
        place = torch.device(name)
        torch.empty(0, device=place, dtype=torch.uint8).numpy(force=True)  # what is not there answers nothing
    except (RuntimeError, NotImplementedError, AssertionError):
        raise RegardError(f"device {name!r} is not here; use cpu, or cuda where there is one") from None
    return place


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
