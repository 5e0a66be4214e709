"""`regard doctor`: what this machine and installation offer, and what to fix.

Torch is imported only where there may be a GPU. Everything else is read in a fraction of a second.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard import __version__
from regard.commands import requirements
from regard.commands.machine_facts import compiler_facts, cpu_facts, disk_facts, memory_facts
from regard.gpu_driver import may_have_gpu

LEAST_PYTHON = (3, 11)
LEAST_MEMORY, LEAST_DISK = 1.0, 1.0  # gigabytes below which small trainings fail
WORD, SOUND = "attention", "AH T EH N SH AH N"
MARKS = {"ok": "ok", "note": "–", "warn": "!", "fail": "✗"}


@dataclass(frozen=True)
class Finding:
    """One line of the report. `level`: ok, note, warn (works, but not well) or fail."""

    name: str
    level: str
    text: str
    fix: str = ""


def doctor(*, as_json: bool = False) -> bool:
    """Print the report; returns whether nothing has failed."""
    facts = collect_facts()
    findings = list(examine(facts))
    healthy = all(one.level != "fail" for one in findings)
    if as_json:
        listed = [vars(one) for one in findings]
        print(json.dumps({"ok": healthy, **facts, "findings": listed}, indent=2))
    else:
        print(format_report(findings))
    return healthy


def collect_facts() -> dict[str, Any]:
    """All facts, as numbers and strings that JSON can hold."""
    needed = requirements.requirements()
    names = ["torch", "numpy", "tokenizers", "safetensors", "pydantic"]
    return {
        "versions": {
            "regard": __version__,
            "metadata": requirements.metadata_version(),
            "python": platform.python_version(),
            **{name: requirements.installed_version(name) for name in names},
        },
        "system": platform.platform(),
        "cpu": cpu_facts(),
        "engine": engine_facts(),
        "compiler": compiler_facts(),
        "gpu": gpu_facts(),
        "threads": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
        "memory": memory_facts(),
        "disk": disk_facts(),
        "requirements": [{**vars(one), "problem": one.problem, "fix": one.fix} for one in needed],
    }


def engine_facts() -> dict[str, Any]:
    """The native engine: its kernels on this CPU, fastest first, and what a prediction shows."""
    from regard.native.library import kernel_names, unavailable

    if reason := unavailable():
        return {"available": False, "reason": reason, "kernels": [], "failure": None}
    failure = _wrong_prediction()
    return {"available": True, "reason": None, "kernels": kernel_names(), "failure": failure}


def _wrong_prediction() -> str | None:
    """What is wrong with a prediction of the included model; None if it is right."""
    from regard.errors import RegardError
    from regard.loading import load

    try:
        answer = str(load("spelling", engine="native", device="cpu")(WORD))
    except (RegardError, OSError) as error:
        return f"the included model cannot be used: {error}"
    return None if answer == SOUND else f"the included model answers {answer!r}, not {SOUND!r}"


def gpu_facts() -> dict[str, Any]:
    """The GPUs that torch can use; torch is imported only if there may be one."""
    if not may_have_gpu():
        return {"driver": False, "devices": [], "reason": None}
    try:
        import torch
    except ImportError as error:
        return {"driver": True, "devices": [], "reason": f"torch cannot be imported: {error}"}
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        reason = "torch finds no usable GPU" if built else "this build of torch is for CPUs only"
        return {"driver": True, "devices": [], "reason": reason}
    devices = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        devices.append({"name": name, "free": free / 1e9, "total": total / 1e9})
    return {"driver": True, "devices": devices, "reason": None}


def examine(facts: dict[str, Any]) -> Iterator[Finding]:
    """The lines of the report."""
    yield from _examine_versions(facts)
    yield from _examine_cpu(facts)
    yield from _examine_gpu(facts["gpu"])
    yield from _examine_space(facts)
    yield from _examine_extras(facts["requirements"])


def _examine_versions(facts: dict[str, Any]) -> Iterator[Finding]:
    versions = facts["versions"]
    stale = versions["metadata"] not in (None, versions["regard"])
    text = f"{versions['regard']}, Python {versions['python']}, torch {versions['torch']}"
    fix = "install it again: pip install . (or pip install -e . in a checkout)"
    if tuple(int(part) for part in versions["python"].split(".")[:2]) < LEAST_PYTHON:
        yield Finding("regard", "fail", text, "install Python 3.11 or newer")
    elif stale:
        yield Finding("regard", "warn", f"{text}; pip installed {versions['metadata']}", fix)
    else:
        yield Finding("regard", "ok", text)
    yield Finding("system", "note", facts["system"])
    required = [one for one in facts["requirements"] if not one["extra"]]
    broken = [one for one in required if one["problem"]]
    for one in broken:
        yield Finding("packages", "fail", one["problem"], one["fix"])
    if not required:
        yield Finding("packages", "warn", "not checked: Regard is not installed with pip", fix)
    elif not broken:
        yield Finding("packages", "ok", f"all {len(required)} required packages are installed")


def _examine_cpu(facts: dict[str, Any]) -> Iterator[Finding]:
    cpu, engine, compiler = facts["cpu"], facts["engine"], facts["compiler"]
    features = ", ".join(cpu["features"]) or "no instruction sets that the engines use"
    yield Finding("cpu", "note", f"{cpu['name']} ({cpu['machine']}): {features}")
    fixed = [f"{name}={value}" for name, value in facts["threads"].items() if value]
    quota = "" if cpu["quota"] is None else f"; the container may use {cpu['quota']:g} of them"
    chosen = f"fixed by {' and '.join(fixed)}" if fixed else "their number is tuned during the work"
    yield Finding("threads", "note", f"{cpu['cores']} cores{quota}; {chosen}")
    if not engine["available"]:
        text, _, fix = engine["reason"].partition("; ")
        yield Finding("engine", "warn", f"{text}: models run on torch", fix)
    elif engine["failure"]:
        fix = "install Regard again, or build the engine again: python -m regard.native"
        yield Finding("engine", "fail", engine["failure"], fix)
    else:
        fastest, *others = engine["kernels"]
        also = f" (also: {', '.join(others)})" if others else ""
        yield Finding(
            "engine", "ok", f"native, {fastest} kernels{also}; a test prediction is right"
        )
    if compiler:
        yield Finding("compiler", "note", compiler["version"] or compiler["command"])
    else:
        yield Finding(
            "compiler", "note", "none found; it is needed only to build the native engine"
        )


def _examine_gpu(gpu: dict[str, Any]) -> Iterator[Finding]:
    for device in gpu["devices"]:
        text = f"{device['name']}, {device['free']:.1f} of {device['total']:.1f} GB free"
        yield Finding("gpu", "ok", text)
    if gpu["reason"]:
        fix = "install a build of torch for your GPU: https://pytorch.org/get-started"
        yield Finding("gpu", "warn", f"a GPU driver is present, but {gpu['reason']}", fix)
    elif not gpu["devices"]:
        yield Finding("gpu", "note", "none; models run on the CPU")


def _examine_space(facts: dict[str, Any]) -> Iterator[Finding]:
    memory, disk = facts["memory"], facts["disk"]
    available = memory["total"] if memory["available"] is None else memory["available"]
    if available is not None:
        low = available < LEAST_MEMORY
        fix = "close other programs, or use a smaller train.batch_tokens" if low else ""
        text = f"{available:.1f} of {memory['total']:.1f} GB available"
        yield Finding("memory", "warn" if low else "ok", text, fix)
    text = f"{disk['free']:.1f} GB free at {disk['folder']}"
    if not disk["writable"]:
        yield Finding("disk", "warn", f"{disk['folder']} is read-only", "use --out FOLDER")
    elif disk["free"] < LEAST_DISK:
        yield Finding("disk", "warn", text, "delete old runs, or use --out on another disk")
    else:
        yield Finding("disk", "ok", text)


def _examine_extras(listed: list[dict[str, Any]]) -> Iterator[Finding]:
    names = dict.fromkeys(one["extra"] for one in listed if one["extra"])
    missing = {
        name: [one["name"] for one in listed if one["extra"] == name and one["problem"]]
        for name in names
    }
    if complete := [name for name, packages in missing.items() if not packages]:
        yield Finding("extras", "ok", ", ".join(complete))
    for name, packages in missing.items():
        if packages:
            yield Finding("extras", "note", f"{name} is not installed", _install(packages))


def _install(packages: list[str]) -> str:
    return f"if you need it: pip install {' '.join(packages)}"


def format_report(findings: list[Finding]) -> str:
    """The findings as aligned lines, the fix of each below it, and a summary."""
    lines = []
    for one in findings:
        lines.append(f"{MARKS[one.level]:>2}  {one.name:9} {one.text}")
        if one.fix:
            lines.append(f"{'':14}→ {one.fix}")
    failed = sum(one.level == "fail" for one in findings)
    warned = sum(one.level == "warn" for one in findings)
    if failed:
        end = f"{failed} to fix (✗); Regard does not work correctly before that."
    elif warned:
        end = f"Regard works; {warned} could be better (!)."
    else:
        end = "Everything is in order."
    return "\n".join([*lines, "", end])
