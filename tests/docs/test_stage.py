"""Staging: links out of docs/ become pages of the site, and links to nothing are errors."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGE = runpy.run_path(str(ROOT / "docs/scripts/stage.py"))
PAGE = ROOT / "docs/index.md"


def staged(text: str, folder: Path) -> str:
    return STAGE["Stage"](folder).with_links(text, PAGE, folder / "index.md")


def test_a_link_to_a_test_leads_to_its_line(tmp_path: Path):
    link = staged("[x](../tests/facts/test_001.py#test_row_times_matrix)", tmp_path)
    line = (ROOT / "tests/facts/test_001.py").read_text().split("def test_row_times_matrix")[0]
    number = line.count("\n") + 1
    assert link == f"[x](source/tests/facts/test_001.py.md#__codelineno-0-{number})"
    assert (tmp_path / "source/tests/facts/test_001.py.md").is_file()


@pytest.mark.parametrize(
    "target", ["missing.md", "../tests/facts/test_001.py#test_missing", "../../outside.md"]
)
def test_a_link_to_nothing_is_an_error(target: str, tmp_path: Path):
    with pytest.raises(STAGE["BrokenLink"]):
        staged(f"[x]({target})", tmp_path)


def test_links_in_code_and_to_other_hosts_stay(tmp_path: Path):
    text = "`[x](missing.md)` [y](https://host/) [z](#here)\n\n```text\n[x](missing.md)\n```\n"
    assert staged(text, tmp_path) == text


def test_a_folder_becomes_a_list_of_its_files(tmp_path: Path):
    assert staged("[x](../examples)", tmp_path) == "[x](source/examples/index.md)"
    listed = re.findall(r"\[(\w+\.py)\]", (tmp_path / "source/examples/index.md").read_text())
    assert listed == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
