"""What is written is true: generated pages are as generated, and the README's blocks run."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_table_of_parts_is_as_generated():
    page = runpy.run_path(str(ROOT / "docs/parts.py"))["page"]()
    assert (ROOT / "docs/parts.md").read_text() == page, "run: python docs/parts.py"


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_readme_blocks_run_and_say_what_they_print(block: str, capsys: pytest.CaptureFixture[str]):
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.split("\n")
    promised = re.findall(r"print\(.*\)  # (.*)", block)
    assert promised
    assert [line.strip() for line in printed if line] == promised
