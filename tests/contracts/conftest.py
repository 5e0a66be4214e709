"""Fixtures of the contract tests."""

import pytest

from tests.contracts.model_cases import USER_PARTS


@pytest.fixture(autouse=True)
def user_parts(monkeypatch: pytest.MonkeyPatch):
    """Registers the user-defined parts for the duration of a test."""
    for registry, name, part in USER_PARTS:
        monkeypatch.setitem(registry, name, part)
