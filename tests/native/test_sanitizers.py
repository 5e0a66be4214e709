"""The engine under AddressSanitizer and UndefinedBehaviorSanitizer, warning-free."""

import subprocess
from pathlib import Path

import pytest

from regard.native.compiler import compile_engine, find_compiler

SANITIZERS = (
    "-O0",
    "-DREGARD_UNROLL=",  # compiles in a fraction of the time
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
DRIVER = Path(__file__).with_name("sanitizer_driver.cpp")


def has_sanitizers(folder: Path) -> bool:
    """Whether the compiler can build and this machine can run a sanitized program."""
    source = folder / "probe.cpp"
    source.write_text("int main() { return 0; }\n")
    flags = ["-fsanitize=address,undefined", str(source), "-o", str(folder / "probe")]
    built = subprocess.run([*(find_compiler() or []), *flags], capture_output=True)
    return built.returncode == 0 and subprocess.run([folder / "probe"]).returncode == 0


def test_random_models_and_damaged_requests_are_clean(tmp_path: Path):
    if not has_sanitizers(tmp_path):
        pytest.skip("the C++ compiler has no AddressSanitizer or UndefinedBehaviorSanitizer")
    driver = compile_engine(tmp_path / "driver", program=DRIVER, extra=SANITIZERS)
    done = subprocess.run([driver, "60"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith("searches ")
