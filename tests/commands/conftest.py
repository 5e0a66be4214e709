"""One small model for all tests of the commands that use a bundle."""

import pytest

from tests.commands.small import arguments, pairs, start, written


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """Letters read backwards, learned in part: some answers are right and some are wrong."""
    home = tmp_path_factory.mktemp("bundle")
    data = written(home / "pairs.tsv", pairs(700, seed=1))
    sets = ("model.width=32", "model.hidden=32", "model.dropout=0.0", "train.budget=256", "train.evaluations=1")
    more = [word for one in sets for word in ("--set", one)]
    process = start(arguments(data, home / "run", "--steps", "90", *more))  # in a process of its own no type is checked
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return home / "run/bundle"


@pytest.fixture
def words(tmp_path):
    """A file of lines that the model has not learned from, with an empty one."""
    found = [source for source, _ in pairs(150, seed=2)]
    found[5] = ""
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word}\n" for word in found))
    return path
