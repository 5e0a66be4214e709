"""Contents of wheel and sdist, built from this checkout without the compiled engine."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import regard
from scripts import release_contents

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A wheel and an sdist. There is no compiler named so: the engine, a minute, is left out."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    env = {**os.environ, "CXX": "no-such-compiler"}
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, env=env, check=True, capture_output=True, timeout=300)
    return [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]


def test_archives_have_the_version_in_their_names(archives):
    version = regard.__version__
    assert [path.name for path in archives] == [
        f"regard-{version}-py3-none-any.whl",
        f"regard-{version}.tar.gz",
    ]


def test_archives_have_all_sources_and_nothing_else(archives):
    for archive in archives:
        found = release_contents.problems(archive, regard.__version__, engine=False)
        assert list(found) == []


def test_metadata_name_licences_and_python_versions(archives):
    wheel, _ = archives
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(f"regard-{regard.__version__}.dist-info/METADATA").decode()
    head = metadata.split("\n\n")[0].splitlines()
    assert f"Version: {regard.__version__}" in head
    assert "License-Expression: Apache-2.0 AND BSD-2-Clause AND MIT" in head
    assert "License-File: NOTICE" in head
    assert "Requires-Python: >=3.11" in head


def test_a_listing_adds_up(archives):
    for archive in archives:
        rows = release_contents.listing(archive).splitlines()[1:]
        count = sum(int(row.split()[1]) for row in rows)
        assert count == len(release_contents.sizes(archive))


@pytest.fixture
def spoiled(archives, tmp_path) -> Path:
    """A copy of the wheel without py.typed and with files that do not belong in it."""
    path = tmp_path / archives[0].name
    with zipfile.ZipFile(archives[0]) as wheel, zipfile.ZipFile(path, "w") as copy:
        for name in wheel.namelist():
            if name != "regard/py.typed":
                copy.writestr(name, wheel.read(name))
        for name in ("tests/test_house.py", "regard/__pycache__/api.cpython-311.pyc"):
            copy.writestr(name, b"")
    return path


def test_missing_and_unwanted_files_are_found(spoiled, monkeypatch):
    monkeypatch.setattr(release_contents, "MOST_MEGABYTES", 0.001)
    found = list(release_contents.problems(spoiled, regard.__version__))
    for part in ("py.typed is missing", "engine.so is missing", "tests/test_house.py is outside"):
        assert any(part in one for one in found), part
    assert any(".pyc does not belong" in one for one in found)
    assert any("MB are allowed" in one for one in found)


def test_a_compiled_engine_in_an_sdist_is_found(archives, tmp_path):
    name = f"regard-{regard.__version__}/src/regard/native/engine.so"
    path = tmp_path / archives[1].name
    with tarfile.open(path, "w:gz") as copy:
        copy.addfile(tarfile.TarInfo(name))
    found = list(release_contents.problems(path, regard.__version__))
    assert any("an sdist has sources only" in one for one in found)
