"""The committed page is up to date: building it again gives the same bytes."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = Path("src/regard/explore/static")


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is needed to build the page")
def test_committed_page_matches_its_source(tmp_path):
    shutil.copytree(
        ROOT / "explorer", tmp_path / "explorer", ignore=shutil.ignore_patterns("node_modules")
    )
    palette = Path("src/regard/plots/palette.json")
    (tmp_path / palette).parent.mkdir(parents=True)
    shutil.copy(ROOT / palette, tmp_path / palette)

    def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["npm", *arguments], cwd=tmp_path / "explorer", capture_output=True, text=True
        )

    installed = npm("ci", "--no-audit", "--no-fund", "--prefer-offline")
    if installed.returncode and "network" in installed.stderr.lower() + installed.stdout.lower():
        pytest.skip("the npm registry is out of reach")
    assert installed.returncode == 0, installed.stderr
    done = npm("run", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.name: path.read_bytes() for path in (tmp_path / STATIC).iterdir()}
    committed = {path.name: path.read_bytes() for path in (ROOT / STATIC).iterdir()}
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == [], (
        "run `npm run build` in explorer/ and commit it"
    )
