"""Builds the documentation site in site/: `make docs`. It needs no network.

python docs/scripts/build.py           # generated pages, figures, and the site in strict mode
python docs/scripts/build.py --pages   # only the generated pages
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parents[1]
GENERATED = {  # script: page, relative to docs/
    "api_reference": "reference/api.md",
    "cli_reference": "reference/cli.md",
    "parts": "parts.md",
    "results": "results.md",
    "settings": "settings.md",
}


def generated_page(script: str) -> str:
    """The text of a generated page."""
    return runpy.run_path(str(SCRIPTS / f"{script}.py"))["page"]()


def generate() -> None:
    """Write the generated pages, and the numbers in the others."""
    for script, page in GENERATED.items():
        (ROOT / "docs" / page).write_text(generated_page(script), encoding="utf-8")
    runpy.run_path(str(SCRIPTS / "page_numbers.py"))["fill"]()


def build(folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Stage the pages, draw the figures and build `folder`/site; warnings are errors."""
    staging = runpy.run_path(str(SCRIPTS / "stage.py"))
    staged = staging["stage"](folder / "build/docs")
    runpy.run_path(str(SCRIPTS / "drawings.py"))["draw"](staged / "figures")
    if folder != ROOT:
        shutil.copyfile(ROOT / "zensical.toml", folder / "zensical.toml")
        (folder / "src").symlink_to(ROOT / "src")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "NO_COLOR": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, cwd=folder, env=environment, **pipes)


if __name__ == "__main__":
    generate()
    if "--pages" not in sys.argv:
        result = build()
        print(result.stdout)
        sys.exit(result.returncode)
