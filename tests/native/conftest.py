"""Compiles the native engine once where its sources changed; skips these tests without one."""

import pytest

from tests.native_build import require_native_engine


@pytest.fixture(scope="session", autouse=True)
def native_engine():
    """The compiled engine."""
    require_native_engine()
