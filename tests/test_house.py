"""The house checks itself: imports go downhill, files stay small, names say what things are,
importing stays light.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/regard"
FILES = sorted(SOURCE.rglob("*.py"))

LAYERS = [
    {
        *(
            "axes",
            "errors",
            "config",
            "ragged",
            "pretrained",
            "terminal",
            "device",
            "disk",
            "onednn",
        ),
        *("registry", "threads", "decoding_options", "user_parts"),
    },
    {"kernels"},
    {"text", "positions", "attention"},
    {"models"},
    {"search", "bundle", "answer"},
    {"native"},
    {"inference"},
    {"training", "hub", "teacher_forcing", "vectors", "pooling"},
    {"pipeline"},
    {"loading"},
    {"quality"},
    {"reports"},
    {"api"},
    {"seeds"},
    {"trace"},
    {"plots"},
    {"explore", "serve"},
    {"commands"},
    {"cli_options"},
    {"cli_tools", "cli_runs"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}
FOUNDATION = {
    ("axes", "errors"),
    ("ragged", "errors"),
    ("ragged", "axes"),
    ("config", "errors"),
    ("device", "errors"),
    ("registry", "errors"),
    ("decoding_options", "errors"),
    ("user_parts", "errors"),
}

HOMES = {  # third-party libraries that live in one place only
    "triton": "attention/backends|kernels",
    "transformers": "hub",
    "fastapi": "explore|serve",
    "uvicorn": "explore|serve",
    "matplotlib": "plots",
    "sklearn": "pooling",
    "tokenizers": "text",
    "cyclopts": "cli",
    "typer": "cli",
}


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are written whole"
            assert node.module
            for alias in node.names:
                part = (
                    node.module == "regard" and alias.name in LEVEL
                )  # `from regard import bundle`, a part of the house
                yield (f"regard.{alias.name}" if part else node.module), node.lineno


def uphill(files: list[Path]) -> Iterator[str]:
    for file in files:
        own = name_of(file)
        if own == "__init__":
            continue
        for module, line in imports(file):
            if not module.startswith("regard."):
                continue
            other = module.split(".")[1]
            free = other == own or (own, other) in FOUNDATION
            if not free and LEVEL[other] >= LEVEL[own]:
                yield f"{file.relative_to(ROOT)}:{line}: {own} may not import {other}"


def test_imports_go_downhill():
    assert list(uphill(FILES)) == []


def test_an_import_uphill_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "positions.py").write_text("from regard.attention import attend\n")
    assert list(uphill([tmp_path / "positions.py"])) == [
        "positions.py:1: positions may not import attention"
    ]


def test_every_part_of_the_house_has_a_level():
    assert {name_of(file) for file in FILES} - {"__init__"} <= set(LEVEL)


@pytest.mark.parametrize("library", HOMES)
def test_libraries_live_in_one_place(library: str):
    for file in FILES:
        place = str(file.relative_to(SOURCE))
        for module, line in imports(file):
            if module.split(".")[0] == library:
                assert re.match(HOMES[library], place), (
                    f"{place}:{line}: {library} belongs in {HOMES[library]}"
                )


def test_files_are_one_idea_long():
    for file in FILES:
        assert file.read_text().count("\n") <= 300, (
            f"{file.relative_to(ROOT)} is too long for one idea"
        )


def test_functions_fit_on_a_screen():
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, (
                    f"{file}:{node.lineno}: {node.name} is too long"
                )


def test_names_say_what_things_are():
    empty = re.compile(r"(^|_)(utils?|helpers?|common|misc|base|manager)(_|$)")
    for file in FILES:
        assert not empty.search(file.stem), file
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                where = f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                assert not node.name.lstrip("_").startswith("get_"), where
                assert not empty.search(re.sub("(?<!^)([A-Z])", r"_\1", node.name).lower()), where


def test_everything_public_says_what_it_is():
    for file in FILES:
        tree = ast.parse(file.read_text())
        assert ast.get_docstring(tree), file
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), (
                    f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                )


def test_importing_regard_loads_torch_and_nothing_heavier():
    heavy = [
        "torch._dynamo",
        "sympy",
        "sklearn",
        "scipy",
        "pandas",
        "matplotlib",
        "transformers",
        "tokenizers",
        "triton",
    ]
    touched = (
        "regard.attend, regard.Ragged, regard.debug"  # what is here is loaded when it is asked for
    )
    script = (
        f"import regard, sys; {touched}; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_test_is_empty():
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.unparse(node)
                proof = ("assert", "raises(", "close(", "gradcheck(", "check(", "warns(")
                assert any(word in text for word in proof), (
                    f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                )


def test_test_names_are_short_and_files_name_a_subject():
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        assert not file.stem.startswith("test_mended"), f"{file.name}: name the code it tests"
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                where = f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                assert len(node.name) <= 60, f"{where} has {len(node.name)} characters"
