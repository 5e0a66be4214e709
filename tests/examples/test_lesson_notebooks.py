"""The lessons as notebooks: made from the texts and the code of the explorer's lessons."""

import re

import nbformat
import pytest

from scripts.lesson_notebooks import FOLDER, lessons, make, notebook_path

LESSONS = lessons()
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


def numbers(text: str) -> list[float]:
    return [float(one) for one in NUMBER.findall(text)]


def test_every_lesson_has_a_notebook():
    assert [number for number, _, _, _ in LESSONS] == [*map(str, range(1, 11)), "A"]
    paths = {notebook_path(number, id) for number, id, _, _ in LESSONS}
    assert set(FOLDER.iterdir()) == paths


@pytest.mark.parametrize("lesson", LESSONS, ids=[id for _, id, _, _ in LESSONS])
def test_a_lesson_notebook_is_up_to_date(lesson):
    """`python scripts/lesson_notebooks.py` writes them again."""
    stored = nbformat.read(notebook_path(lesson[0], lesson[1]), as_version=4)
    made = make(*lesson)
    nbformat.validate(stored)
    assert [cell.source for cell in stored.cells] == [cell.source for cell in made.cells]
    headings = [cell.source.split("\n")[0] for cell in stored.cells if cell.source[0] == "#"]
    assert headings[1:] == ["## Guess", "## Do", "## See", "## Explain"]
    texts = [cell.outputs[0].text for cell in (stored.cells[3], made.cells[3])]
    assert NUMBER.sub("", texts[0]) == NUMBER.sub("", texts[1])
    assert numbers(texts[0]) == pytest.approx(numbers(texts[1]), abs=2e-3)  # of another machine
    assert numbers(texts[0])
