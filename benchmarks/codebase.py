"""Codebase metrics: file sizes, line widths, duplicate names, type checks and attribute probes.

    python benchmarks/codebase.py

`tests/test_house.py` uses the same functions and requires that none of them finds anything.
"""

import ast
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/regard"
FAMILIES = {"Transformer", "Recurrent"}  # model classes that only MODEL_PACKAGES may check for
MODEL_PACKAGES = {"models", "inference"}
PLATFORM = {"os", "mmap"}  # modules whose functions depend on the platform
FOREIGN_ATTRIBUTES = {  # of classes that are not ours
    *("strerror", "encoding"),  # exceptions and streams of the standard library
    *("column_names", "columns", "to_list"),  # tables of pandas, polars and datasets
    "get_ipython",
}


def source_files() -> list[Path]:
    """All Python files of the package."""
    return sorted(SOURCE.rglob("*.py"))


def all_files() -> list[Path]:
    """All Python files of the package, the tests and the benchmarks."""
    folders = (SOURCE, ROOT / "tests", ROOT / "benchmarks")
    return sorted(file for folder in folders for file in folder.rglob("*.py"))


def long_lines(files: list[Path], columns: int = 100) -> Iterator[str]:
    """Lines with more than `columns` characters."""
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > columns:
                yield f"{file.relative_to(ROOT)}:{number}: {len(line)} columns"


def duplicate_modules(files: list[Path]) -> Iterator[str]:
    """Base names that several modules have; packages may each have `__init__` and `__main__`."""
    homes = defaultdict(list)
    for file in files:
        if not file.stem.startswith("__"):
            homes[file.stem].append(str(file.relative_to(ROOT)))
    yield from (f"{name}: {', '.join(found)}" for name, found in homes.items() if len(found) > 1)


def duplicate_classes(files: list[Path]) -> Iterator[str]:
    """Names that several public classes have."""
    homes = defaultdict(list)
    for file in files:
        for node in nodes(file):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    yield from (f"{name}: {', '.join(found)}" for name, found in homes.items() if len(found) > 1)


def family_checks(files: list[Path]) -> Iterator[str]:
    """`isinstance(…, Transformer)` and the like outside of the packages that implement families."""
    for file in files:
        if file.relative_to(SOURCE).parts[0] in MODEL_PACKAGES:
            continue
        for call in _calls(file, "isinstance", 2):
            named = {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)}
            named |= {
                node.attr for node in ast.walk(call.args[1]) if isinstance(node, ast.Attribute)
            }
            if named & FAMILIES:
                yield f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"


def attribute_probes(files: list[Path]) -> Iterator[str]:
    """`hasattr(x, "name")` and `getattr(x, "name", default)`: capabilities that are not declared.

    Functions that a platform lacks, and optional attributes of other libraries, are allowed.
    """
    for file in files:
        for call in (*_calls(file, "hasattr", 2), *_calls(file, "getattr", 3)):
            subject, attribute = call.args[0], call.args[1]
            if isinstance(subject, ast.Name) and subject.id in PLATFORM:
                continue
            if not isinstance(attribute, ast.Constant) or attribute.value in FOREIGN_ATTRIBUTES:
                continue
            yield f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def nodes(file: Path) -> list[ast.AST]:
    """All nodes of the syntax tree of a file."""
    return list(ast.walk(parsed(file)))


def _calls(file: Path, function: str, arguments: int) -> Iterator[ast.Call]:
    for node in nodes(file):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == function
            and len(node.args) == arguments
        ):
            yield node


def main() -> None:
    """Print all metrics."""
    from harness import Check, no_options, report  # imports torch

    no_options(__doc__)
    files = source_files()
    lengths = [file.read_text(encoding="utf-8").count("\n") for file in files]
    found = {
        "lines over 100 columns (src, tests, benchmarks)": list(long_lines(all_files())),
        "duplicate module base names": list(duplicate_modules(files)),
        "duplicate public class names": list(duplicate_classes(files)),
        "isinstance checks for model families": list(family_checks(files)),
        "attribute probes (hasattr, getattr)": list(attribute_probes(files)),
    }
    for name, places in found.items():
        for place in places:
            print(f"{name}: {place}")
    checks = [
        Check("files in src", len(files), None, None, True),
        Check("median lines per file", statistics.median(lengths), None, None, True),
        Check("longest file", max(lengths), None, 300, max(lengths) <= 300),
        *(Check(name, len(places), None, 0, not places) for name, places in found.items()),
    ]
    report("codebase", checks, on="any")


if __name__ == "__main__":
    main()
