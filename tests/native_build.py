"""The compiled native engine for tests: built once where its sources changed."""

import fcntl
import tempfile
from pathlib import Path

import pytest

from regard.native import unavailable
from regard.native.compiler import compile_engine, find_compiler


def require_native_engine() -> None:
    """Compile the engine if it is missing or outdated; skip the test without a compiler.

    Several test processes compile it only once.
    """
    if find_compiler() is None:
        pytest.skip("no C++ compiler was found, so the native engine cannot be tested")
    with open(Path(tempfile.gettempdir()) / "regard-native-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if unavailable() is not None:
            compile_engine()
    assert unavailable() is None
