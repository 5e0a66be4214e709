"""Whether this machine may have a GPU, asked without importing torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Device files of NVIDIA and AMD drivers, and of GPUs in the Linux subsystem of Windows.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def may_have_gpu() -> bool:
    """Whether torch could find a GPU here. If not, "auto" is a CPU and torch need not be asked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or sys.platform == "darwin":
        return False
    return not sys.platform.startswith("linux") or any(Path(file).exists() for file in DEVICE_FILES)


def runs_on_cpu(device: str) -> bool:
    """Whether a device ("auto", "cpu", "cuda", …) is the CPU."""
    if device != "auto":
        return device == "cpu"
    if not may_have_gpu():
        return True
    from regard.device import resolve_device

    return resolve_device("auto").type == "cpu"
