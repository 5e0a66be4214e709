"""The course covers every section of the five documents, and every claim has an existing test."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONCEPTS = ROOT / "docs/concepts"
SECTIONS = {  # the numbered headings of each document; references and resources have no claims
    "000": "1 2 3 4 5 5.1 5.2 5.3",
    "001": "1 2 3 3.1 4 5 6 7",
    "002": "1 2 3 4 5 6 7 8 9 9.1 9.2 9.3",
    "003": "1.1 1.2 1.3 2 2.1 3.1 3.2 3.3 4.1 4.2 4.3 5 6.1 6.2 7.1 7.2 7.3",
    "004": "1.1 1.2 1.3 1.4 1.5 2",
}
ROWS = re.findall(r"^\| (\d{3}\.[\d.]+) \|(.*)\|$", (CONCEPTS / "sections.md").read_text(), re.M)
LINK = re.compile(r"\]\(((?:\.\./)+tests/[\w/]+\.py)(?:#(\w+))?\)")


def test_the_table_has_every_section_once():
    wanted = [f"{name}.{part}" for name, parts in SECTIONS.items() for part in parts.split()]
    assert [section for section, _ in ROWS] == wanted


@pytest.mark.parametrize(("section", "row"), ROWS, ids=[section for section, _ in ROWS])
def test_each_section_has_a_page_and_a_test(section: str, row: str):
    _, page, tests = row.split(" | ")
    (file,) = re.findall(r"\]\((\w+\.md)", page)
    assert (CONCEPTS / file).is_file()
    assert LINK.search(tests)


@pytest.mark.parametrize("page", sorted(CONCEPTS.glob("*.md")), ids=lambda page: page.stem)
def test_every_linked_test_exists(page: Path):
    found = LINK.findall(page.read_text())
    for path, name in found:
        text = (page.parent / path).read_text()
        assert not name or f"def {name}(" in text, f"{page.name}: {path} has no {name}"
    assert found


def test_the_course_states_the_right_numbers():
    text = (CONCEPTS / "corrections.md").read_text()
    for number in ("0.9485", "0.9268", "1.0000", "−0.9900", "0.54, −0.42, −0.99, −0.65, 0.28"):
        assert number in text
