"""Compile the native engine with the C++ compiler of this machine.

`pip install` runs this through the build hook. After a change of the C++ sources, run
`python -m regard.native`. This file uses the standard library only, because the build
hook loads it before the package is installed, and imports what only compiling needs when it
compiles: `regard predict` imports this file, too.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

SOURCES = Path(__file__).parent / "cpp"
LIBRARY = Path(__file__).parent / "engine.so"
# No -march=native: the library runs on every CPU of the architecture and selects kernels at run
# time. Without contraction, plain C++ sums do not depend on how the compiler unrolls a loop.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic")
X86_64 = ("x86_64", "amd64", "i386", "i686")
INSTRUCTION_SETS = {
    "kernels_neon_dot.cpp": (("aarch64", "arm64"), ("-march=armv8.2-a+dotprod",)),
    "kernels_neon_i8mm.cpp": (("aarch64", "arm64"), ("-march=armv8.2-a+dotprod+i8mm",)),
    "kernels_avx2.cpp": (X86_64, ("-mavx2", "-mfma")),
    "kernels_avx512.cpp": (
        X86_64,
        ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mfma"),
    ),
}


class CompileError(Exception):
    """The engine could not be compiled; the message says why."""


def find_compiler() -> list[str] | None:
    """The command of a C++ compiler: $CXX, or the first one found."""
    import shlex
    import shutil

    if chosen := os.environ.get("CXX"):
        return shlex.split(chosen)
    names = ("c++", "g++", "clang++")
    return next(([path] for name in names if (path := shutil.which(name))), None)


def source_digest(sources: Path = SOURCES) -> str:
    """Identifies the C++ sources, so that an outdated library is noticed."""
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def instruction_flags(source: Path, machine: str | None = None) -> tuple[str, ...]:
    """The flags that enable the instruction set of a kernel file on this machine."""
    machines, flags = INSTRUCTION_SETS.get(source.name, ((), ()))
    return flags if (machine or platform.machine()).lower() in machines else ()


def compile_engine(
    output: Path = LIBRARY, *, program: Path | None = None, extra: tuple[str, ...] = ()
) -> Path:
    """Compile and link the engine as `output`, which appears only when it is complete.

    With `program`, a C++ file with a main function, the result is that program.
    """
    import tempfile

    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler was found; install g++ or clang++")
    sources = sorted(SOURCES.glob("*.cpp")) + ([program] if program else [])
    kind = () if program else ("-shared",)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".native-") as folder:
        objects = _compile_sources(compiler, sources, Path(folder), extra)
        result = Path(folder) / output.name
        _run([*compiler, *kind, "-pthread", *extra, "-o", str(result), *map(str, objects)])
        result.replace(output)
    return output


def _compile_sources(
    compiler: list[str], sources: list[Path], folder: Path, extra: tuple[str, ...]
) -> list[Path]:
    """Compile the sources in parallel; returns the object files."""
    from concurrent.futures import ThreadPoolExecutor

    digest = f'-DREGARD_SOURCE_DIGEST="{source_digest()}"'

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        flags = [*FLAGS, *WARNINGS, f"-I{SOURCES}", *extra, digest, "-c", str(source)]
        instructions = instruction_flags(source)
        try:
            _run([*compiler, *instructions, *flags, "-o", str(target)])
        except CompileError:
            if not instructions:
                raise
            # An old compiler may not know these instructions: the file is then empty without them.
            _run([*compiler, *flags, "-o", str(target)])
        return target

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(compile_one, sources))


def _run(command: list[str]) -> None:
    import shlex
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise CompileError(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode:
        raise CompileError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
