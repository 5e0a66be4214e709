"""Generated pages are up to date, and every code block of the documentation runs as shown."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page_blocks import (
    ELSEWHERE,
    NOT_RUN,
    NOTES,
    PAGES,
    ROOT,
    Block,
    Session,
    blocks_of,
    shortened,
)
from tests.docs.page_runner import pages_to_run

NUMBERS = runpy.run_path(str(ROOT / "docs/scripts/page_numbers.py"))
BUILD = runpy.run_path(str(ROOT / "docs/scripts/build.py"))


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, dict]:
    """What the blocks of each page did."""
    command = [sys.executable, "-m", "tests.docs.page_runner", str(tmp_path_factory.mktemp("run"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("script", BUILD["GENERATED"])
def test_generated_page_is_up_to_date(script: str):
    page = ROOT / "docs" / BUILD["GENERATED"][script]
    assert page.read_text() == BUILD["generated_page"](script), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_are_those_of_the_kept_results(page: Path):
    assert NUMBERS["filled"](page.read_text()) == page.read_text(), "run: make docs"


def test_a_changed_number_is_corrected():
    changed = "at <!--n:train_tokens-->9.99<!--/n--> M"
    assert NUMBERS["filled"](changed) == "at <!--n:train_tokens-->1.74<!--/n--> M"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_files_exist(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    missing = [target for target in targets if not (page.parent / target).exists()]
    drawn = [target for target in missing if "figures/" in target]  # checked by test_site.py
    assert missing == drawn, f"{page.name} links to files that do not exist"


def test_a_block_is_run_or_says_why_not():
    for page in PAGES:
        for block in blocks_of(page):
            known = not block.title or bool(block.file) or block.title in NOT_RUN | NOTES
            assert known, f"{page.name}:{block.line}: unknown title {block.title!r}"


def test_commands_run_elsewhere_are_in_that_test():
    shown = {line.split("  #")[0].strip() for page in PAGES for block in blocks_of(page)
             for line in block.code.splitlines()}  # fmt: skip
    for command, (file, words) in ELSEWHERE.items():
        assert command in shown
        test = (ROOT / file).read_text()
        assert [word for word in words if f'"{word}"' not in test] == [], file


def test_every_fence_names_a_language():
    for page in PAGES:
        fences = len(re.findall(r"^ *```", page.read_text(), re.MULTILINE))
        assert fences == 2 * len(blocks_of(page)), page.name


@pytest.mark.parametrize("page", pages_to_run())
def test_the_blocks_of_a_page_run(page: str, results: dict[str, dict]):
    assert results[page]["error"] is None, results[page]["error"]
    assert results[page]["done"] == sum(block.is_run for block in blocks_of(ROOT / page))


def test_a_wrong_output_is_found(tmp_path: Path):
    session = Session(tmp_path, {})
    for language, code in [("python", "print(1)  # 2\n"), ("sh", "echo 1   # → 2\n")]:
        with pytest.raises(AssertionError):
            session.run(Block(tmp_path, 1, language, "", code))
        session.run(Block(tmp_path, 1, language, "", code.replace("1", "2")))


def test_trainings_are_shortened_and_nothing_else():
    words = ["train", "a.tsv", "--minutes", "9", "--out", "x"]
    assert shortened(words)[:5] == ["train", "a.tsv", "--out", "x", "--steps"]
    assert shortened(["predict", "m", "--max-length", "9"])[-1] == "9"
