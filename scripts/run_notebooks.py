"""Execute the notebooks of examples/notebooks in new folders, print their times, check their size.

    python scripts/run_notebooks.py                  # all: fails if one of them fails
    python scripts/run_notebooks.py 2_your_own_pairs # by name
    python scripts/run_notebooks.py --write          # also store the outputs

A notebook sees one thread per process, as the tests do.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import resource
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).resolve().parent.parent / "examples/notebooks"
PATIENCE = 900  # seconds that a cell may take on a busy machine; not a measure of speed
MOST_KILOBYTES = 250  # of a stored notebook


def notebooks() -> list[Path]:
    """All notebooks, in the order of their numbers."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path) -> tuple[nbformat.NotebookNode, float]:
    """Run all cells in a new folder; returns the notebook with its outputs and the seconds."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = {"timeout": PATIENCE, "kernel_name": "python3", "record_timing": False}
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options).execute()
    return notebook, time.perf_counter() - start


def store(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook with small pictures and without what differs from machine to machine."""
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = shrink(output.data["image/png"])
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def shrink(encoded: str) -> str:
    """A PNG picture in 64 colours, which are enough for plots: a third of the size."""
    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    smaller = io.BytesIO()
    picture.quantize(64, dither=Image.Dither.NONE).save(smaller, "PNG", optimize=True)
    return base64.b64encode(smaller.getvalue()).decode()


def main() -> None:
    """Execute the chosen notebooks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="notebooks, without .ipynb (default: all)")
    parser.add_argument("--write", action="store_true", help="store the outputs")
    options = parser.parse_args()
    total = cpu = 0.0
    for path in notebooks():
        if options.names and path.stem not in options.names:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        notebook, seconds = execute(path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # the kernel has ended
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        total, cpu = total + seconds, cpu + used
        if options.write:
            store(notebook, path)
        size = path.stat().st_size / 1e3
        print(f"{path.name:36} {seconds:6.1f} s {used:6.1f} s CPU {size:8.1f} kB", flush=True)
    print(f"{'total':36} {total:6.1f} s {cpu:6.1f} s CPU")


if __name__ == "__main__":
    main()
