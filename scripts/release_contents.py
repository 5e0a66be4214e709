"""Rules for the files of a wheel and of an sdist: what must be inside, what must not, the size.

    python scripts/release_contents.py dist/regard-*.whl dist/regard-*.tar.gz

Uses the standard library only, because `make release-check` runs it before anything is installed.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
MOST_MEGABYTES = 25.0
FORBIDDEN_FOLDERS = {
    *("tests", "benchmarks", "node_modules", "runs", "__pycache__"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", ".venv"),
}
FORBIDDEN_SUFFIXES = {".pyc", ".pyo", ".log", ".tmp", ".orig", ".rej"}
PACKAGE_FILES = [
    "py.typed",
    "data/cmudict.tsv.xz",
    "data/LICENSE.cmudict",
    "data/models/spelling/weights.safetensors",
    "data/models/spelling-recurrent/weights.safetensors",
    "explore/static/index.html",
    "explore/static/lessons.js",
    "native/cpp/engine.cpp",
]
LICENCES = ["LICENSE", "NOTICE", "src/regard/data/LICENSE.cmudict"]
SDIST_FILES = ["pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "CITATION.cff"]


def sizes(archive: Path) -> dict[str, int]:
    """The files of a wheel or an sdist with their unpacked sizes."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {one.filename: one.file_size for one in wheel.infolist() if not one.is_dir()}
    with tarfile.open(archive) as sdist:
        return {one.name: one.size for one in sdist.getmembers() if one.isfile()}


def package_sources(source: Path = ROOT / "src/regard") -> list[str]:
    """The files of the package in the checkout, without caches and what is compiled."""
    files = (file.relative_to(source) for file in source.rglob("*") if file.is_file())
    return sorted(
        file.as_posix()
        for file in files
        if not FORBIDDEN_FOLDERS & set(file.parts)
        and file.suffix not in FORBIDDEN_SUFFIXES
        and not any(part.startswith(".") for part in file.parts)
        and file.name != "engine.so"
    )


def problems(archive: Path, version: str, *, engine: bool = True) -> Iterator[str]:
    """What is wrong with a wheel or an sdist. `engine`: the wheel has the compiled engine."""
    files = sizes(archive)
    if archive.suffix == ".whl":
        required = [f"regard/{name}" for name in PACKAGE_FILES + package_sources()]
        required += [f"regard-{version}.dist-info/licenses/{name}" for name in LICENCES]
        required += ["regard/native/engine.so"] if engine else []
        roots = {"regard", f"regard-{version}.dist-info"}
    else:
        top = f"regard-{version}"
        required = [f"{top}/src/regard/{name}" for name in PACKAGE_FILES + package_sources()]
        required += [f"{top}/{name}" for name in LICENCES + SDIST_FILES]
        roots = {top}
        if f"{top}/src/regard/native/engine.so" in files:
            yield f"{archive.name}: has a compiled engine.so; an sdist has sources only"
    yield from (f"{archive.name}: {name} is missing" for name in required if name not in files)
    yield from (f"{archive.name}: {found}" for found in _unwanted(files, roots))
    if (megabytes := archive.stat().st_size / 1e6) > MOST_MEGABYTES:
        yield f"{archive.name}: {megabytes:.1f} MB; at most {MOST_MEGABYTES:.0f} MB are allowed"


def _unwanted(files: Mapping[str, int], roots: set[str]) -> Iterator[str]:
    for name in files:
        path = PurePosixPath(name)
        if path.parts[0] not in roots:
            yield f"{name} is outside {' and '.join(sorted(roots))}"
        if FORBIDDEN_FOLDERS & set(path.parts) or path.suffix in FORBIDDEN_SUFFIXES:
            yield f"{name} does not belong in a package"


def listing(archive: Path) -> str:
    """The size of an archive, and the number and size of the files in each of its folders."""
    files = sizes(archive)
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for name, octets in files.items():
        parts = PurePosixPath(name).parts
        depth = 2 if archive.suffix == ".whl" else 4
        folder = "/".join(parts[: min(depth, len(parts) - 1)])
        count[folder] += 1
        size[folder] += octets
    total = sum(size.values()) / 1e6
    head = f"{archive.name}: {archive.stat().st_size / 1e6:.2f} MB, unpacked {total:.2f} MB"
    rows = [
        f"  {folder:44} {count[folder]:4} files {octets / 1e3:10,.1f} kB"
        for folder, octets in size.most_common()
    ]
    return "\n".join([f"{head}, {len(files)} files", *rows])


def main() -> None:
    """Print the contents of the archives; exit with 1 if something is wrong with them."""
    found: list[str] = []
    for archive in map(Path, sys.argv[1:]):
        print(listing(archive))
        found += problems(archive, archive.name.removesuffix(".tar.gz").split("-")[1])
    print("\n".join(found), file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
