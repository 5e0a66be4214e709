"""Fixtures of the training tests."""

import pytest

from tests.commands.small import written


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of pairs."""
    return written(tmp_path_factory.mktemp("data") / "pairs.tsv")
