"""The compiled native engine for tests: built once where its sources changed."""

import fcntl
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest

from regard.native import unavailable
from regard.native.compiler import LIBRARY, compile_engine, find_compiler


def require_native_engine() -> None:
    """Compile the engine if it is missing or outdated; skip the test without a compiler.

    Several test processes compile it only once.
    """
    if find_compiler() is None:
        pytest.skip("no C++ compiler was found, so the native engine cannot be tested")
    checkout = sha256(str(LIBRARY).encode()).hexdigest()[:12]
    with open(Path(tempfile.gettempdir(), f"regard-native-{checkout}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if unavailable() is not None:
            compile_engine()
    assert unavailable() is None
