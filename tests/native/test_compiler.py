"""Compiling the native engine, with a compiler that is only pretended."""

from pathlib import Path

import pytest

from regard.native import compiler
from regard.native.compiler import INSTRUCTION_SETS, CompileError, compile_engine


def pretend_compiler(monkeypatch: pytest.MonkeyPatch, refused: str) -> list[list[str]]:
    """A compiler that refuses commands with a certain part; returns its successful commands."""
    done: list[list[str]] = []

    def run(command: list[str]) -> None:
        if any(refused in part for part in command):
            raise CompileError(f"unknown: {refused}")
        done.append(command)
        Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(compiler, "find_compiler", lambda: ["c++"])
    monkeypatch.setattr(compiler, "_run", run)
    return done


def test_unknown_instruction_set_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler.platform, "machine", lambda: "aarch64")
    done = pretend_compiler(monkeypatch, "+i8mm")
    assert compile_engine(tmp_path / "engine.so").exists()
    flags = {Path(c[c.index("-c") + 1]).name: c for c in done if "-c" in c}
    assert not any(part.startswith("-march") for part in flags["kernels_neon_i8mm.cpp"])
    assert INSTRUCTION_SETS["kernels_neon_dot.cpp"][1][0] in flags["kernels_neon_dot.cpp"]


def test_error_in_a_plain_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pretend_compiler(monkeypatch, "search.cpp")
    with pytest.raises(CompileError, match=r"search\.cpp"):
        compile_engine(tmp_path / "engine.so")
    assert list(tmp_path.iterdir()) == []
