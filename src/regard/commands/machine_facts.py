"""Facts about this machine, read without torch: CPU, memory, disk and compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# Instruction sets that the engines use, by the name of the operating system for each.
LINUX_FEATURES = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX BF16",
    "amx_int8": "AMX INT8",
    "asimd": "NEON",
    "asimddp": "dot product",
    "bf16": "BF16",
    "i8mm": "I8MM",
    "sve": "SVE",
}
MAC_FEATURES = {
    "hw.optional.neon": "NEON",
    "hw.optional.AdvSIMD": "NEON",
    "hw.optional.arm.FEAT_DotProd": "dot product",
    "hw.optional.arm.FEAT_BF16": "BF16",
    "hw.optional.arm.FEAT_I8MM": "I8MM",
    "hw.optional.avx2_0": "AVX2",
}
GIGABYTE = 1e9


def output_of(*command: str) -> str:
    """The standard output of a short command; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def cpu_facts() -> dict[str, Any]:
    """Name, usable cores, instruction sets, and the limit of a container on CPU time."""
    from regard.text.tokenizer_workers import available_cores

    name, features = _mac_cpu() if sys.platform == "darwin" else _linux_cpu(_read("/proc/cpuinfo"))
    return {
        "name": name or platform.processor() or platform.machine(),
        "machine": platform.machine(),
        "cores": available_cores(),
        "features": features,
        "quota": parse_quota(_read("/sys/fs/cgroup/cpu.max")),
    }


def _linux_cpu(cpuinfo: str) -> tuple[str, list[str]]:
    lines = [line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line]
    fields = {key.strip().lower(): value.strip() for key, value in reversed(lines)}  # first wins
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    return fields.get("model name", ""), [LINUX_FEATURES[n] for n in LINUX_FEATURES if n in flags]


def _mac_cpu() -> tuple[str, list[str]]:
    lines = output_of("sysctl", "hw.optional").splitlines()
    present = {line.split(":")[0] for line in lines if line.endswith(": 1")}
    found = [label for key, label in MAC_FEATURES.items() if key in present]
    return output_of("sysctl", "-n", "machdep.cpu.brand_string").strip(), list(dict.fromkeys(found))


def parse_quota(text: str) -> float | None:
    """The cores that a container may use on average: cpu.max of cgroup 2; None without a limit."""
    words = text.split()
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def memory_facts() -> dict[str, float | None]:
    """Total and available gigabytes; a container's limit counts if it is lower."""
    if sys.platform == "darwin":
        return {"total": _gigabytes(output_of("sysctl", "-n", "hw.memsize")), "available": None}
    lines = [line.split() for line in _read("/proc/meminfo").splitlines()]
    fields = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    total, available = fields.get("MemTotal:"), fields.get("MemAvailable:")
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    if limit.isdigit() and total and available and int(limit) < total:
        used = int(_read("/sys/fs/cgroup/memory.current").strip() or 0)
        total, available = int(limit), min(available, max(0, int(limit) - used))
    return {"total": _gigabytes(total), "available": _gigabytes(available)}


def disk_facts(folder: Path | None = None) -> dict[str, Any]:
    """Free gigabytes of the disk that runs are written to."""
    place = folder or Path.cwd()
    return {
        "folder": str(place),
        "free": shutil.disk_usage(place).free / GIGABYTE,
        "writable": os.access(place, os.W_OK),
    }


def compiler_facts() -> dict[str, str] | None:
    """The C++ compiler that would build the native engine, and its version."""
    from regard.native.compiler import find_compiler

    command = find_compiler()
    if command is None:
        return None
    version = output_of(*command, "--version").splitlines()
    return {"command": " ".join(command), "version": version[0] if version else ""}


def _gigabytes(octets: str | int | None) -> float | None:
    return int(octets) / GIGABYTE if octets else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
