"""Notebooks: each runs from start to end in a new folder, and is stored small with its outputs."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from scripts.run_notebooks import FOLDER, MOST_KILOBYTES, notebooks

ROOT = Path(__file__).parents[2]
NAMES = [
    "1_attention_from_scratch",
    "2_your_own_pairs",
    "3_positions_compared",
    "4_look_inside_a_translation",
    "5_fine_tune_and_export",
    "6_your_own_normaliser",
]


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def test_all_notebooks_are_listed():
    assert [path.stem for path in notebooks()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_small_with_its_outputs(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (FOLDER / f"{name}.ipynb").stat().st_size <= 1000 * MOST_KILOBYTES
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert any(output.output_type in ("stream", "execute_result") for output in outputs)
    assert not any(output.output_type == "error" for output in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_explains_and_asserts(name):
    cells = read(name).cells
    assert cells[0].source.startswith("# ")
    assert "pip install" in cells[0].source
    text = [cell for cell in cells if cell.cell_type == "markdown"]
    assert len(text) >= 5
    assert sum("assert " in cell.source for cell in cells if cell.cell_type == "code") >= 1
    for cell in cells:
        assert "/tmp" not in str(cell), "a path of one machine"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name):
    """In a process of its own, which prints the time; its assertions are those of the notebook."""
    command = [sys.executable, "scripts/run_notebooks.py", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{name}.ipynb" in done.stdout
