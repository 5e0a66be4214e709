"""Awkward files: each is read correctly, or rejected with an error that states the fix."""

from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.text import Corpus
from tests.text.awkward_files import CASES


@pytest.mark.parametrize("name", CASES)
def test_awkward_file_is_read_or_rejected(tmp_path: Path, name: str):
    case = CASES[name]
    path = tmp_path / case.file
    path.write_bytes(case.content)
    if not case.error:
        assert list(Corpus(path, **case.options)) == list(case.pairs)
        return
    with pytest.raises(RegardError) as error:
        list(Corpus(path, **case.options))
    message = str(error.value)
    assert case.error in message
    assert "\n" not in message


def test_there_are_many_awkward_files():
    assert len(CASES) >= 60
