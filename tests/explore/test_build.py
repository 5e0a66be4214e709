"""The page in the package is the one its source makes: built again, it is the same to the byte."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = Path("src/regard/explore/static")


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm here to build the page with")
def test_the_built_page_is_that_of_its_source(tmp_path):
    shutil.copytree(ROOT / "explorer", tmp_path / "explorer", ignore=shutil.ignore_patterns("node_modules"))
    palette = Path("src/regard/plots/palette.json")
    (tmp_path / palette).parent.mkdir(parents=True)
    shutil.copy(ROOT / palette, tmp_path / palette)

    def npm(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["npm", *words], cwd=tmp_path / "explorer", capture_output=True, text=True)

    installed = npm("ci", "--no-audit", "--no-fund", "--prefer-offline")
    if installed.returncode and "network" in installed.stderr.lower() + installed.stdout.lower():
        pytest.skip("the registry of npm is out of reach")
    assert installed.returncode == 0, installed.stderr
    done = npm("run", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.name: path.read_bytes() for path in (tmp_path / STATIC).iterdir()}
    kept = {path.name: path.read_bytes() for path in (ROOT / STATIC).iterdir()}
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name] != kept[name]] == [], "run `npm run build` in explorer/ and commit it"
