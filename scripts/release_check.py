"""`make release-check`: build wheel and sdist, install each in a clean environment, use it there.

    python scripts/release_check.py            # build into dist/, then check
    python scripts/release_check.py --keep     # keep the environment for a closer look

Uses the standard library only. Packages come from pip as configured, in the versions of
constraints.txt. The environment and its working folder are outside the repository.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from release_contents import ROOT, listing, problems
from release_smoke import ReleaseError, smoke_test

DIST = ROOT / "dist"
CONSTRAINTS = str(ROOT / "constraints.txt")


def version() -> str:
    """The version, read without importing the package."""
    text = (ROOT / "src/regard/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+?)"', text, re.MULTILINE)
    assert found
    return found[1]


def run(*words: str | Path, where: Path = ROOT) -> None:
    """Run a command without the variables of this environment; raises if it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(word) for word in words], cwd=where, env=env)
    if done.returncode:
        raise ReleaseError(f"exit {done.returncode}: {' '.join(map(str, words))}")


def environment(folder: Path) -> Path:
    """A new virtual environment; returns its Python."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    return python


def build(folder: Path) -> tuple[Path, Path]:
    """The new wheel and sdist in dist/; the wheel is built from the unpacked sdist."""
    python = environment(folder / "builder")
    run(python, "-m", "pip", "install", "--quiet", "build")
    shutil.rmtree(DIST, ignore_errors=True)
    run(python, "-m", "build", "--outdir", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check(folder: Path) -> None:
    """Build, look into the archives, install and use them."""
    print("== build", flush=True)
    wheel, sdist = build(folder)
    found = []
    for archive in (wheel, sdist):
        print(listing(archive), flush=True)
        found += problems(archive, version())
    if found:
        raise ReleaseError("\n".join(found))
    print(f"== wheel in a clean environment: {folder}", flush=True)
    python = environment(folder / "clean")
    pip = (python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    run(*pip, wheel, where=elsewhere)
    run(python, "-m", "pip", "check", where=elsewhere)
    smoke_test(folder / "clean", elsewhere, version())
    print("== sdist in the same environment", flush=True)
    run(*pip, "--force-reinstall", "--no-deps", sdist, where=elsewhere)
    smoke_test(folder / "clean", elsewhere, version(), quick=True)


def main() -> None:
    """Check, and remove the environments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    keep, start = parser.parse_args().keep, time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="regard-release-"))
    try:
        check(folder)
    except (ReleaseError, subprocess.TimeoutExpired, OSError) as error:
        sys.exit(f"release-check failed: {error}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"release-check passed: Regard {version()}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
