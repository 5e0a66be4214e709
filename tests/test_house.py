"""Rules of the source code: imports between layers, file sizes, names, docstrings, light import."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import codebase

ROOT, SOURCE = codebase.ROOT, codebase.SOURCE
FILES = codebase.source_files()

# Packages and modules from low to high. A module imports only from lower layers and from its own
# package, never from another package of its own layer.
LAYERS = [
    {
        "errors",
        "axes",
        "checksums",
        "disk",
        "lazy_names",
        "model_limits",
        "pretrained",
        "signals",
        "terminal",
        "threads",
    },
    {"client_protocol"},
    {"client"},
    {
        *("config", "device", "registry", "decoding_options", "ragged", "int8", "strict_json"),
        "calibration",
    },
    {"gpu_driver", "ensemble_settings"},
    {"kernels"},
    {"text", "positions", "attention"},
    {"models"},
    {"search", "bundle", "answer", "source_encoder", "teacher_forcing"},
    {"decoding_engine", "line_answers"},
    {"native"},
    {"inference"},
    {"hub"},
    {"engine_choice", "model_location"},
    {"searcher"},
    {"training", "vectors", "pooling"},
    {"pipeline"},
    {"loading"},
    {"quality"},
    {"reports"},
    {"api"},
    {"web"},
    {*("distillation", "quantization", "model_export", "model_import"), "confidence_calibration"},
    {"seeds"},
    {"trace"},
    {"plots"},
    {"explore", "serve"},
    {"commands"},
    {"bulk"},
    {"cli_groups", "cli_help"},
    {"cli_options", "cli_training_options"},
    {"cli_bulk", "cli_tools", "cli_runs", "cli_serve", "cli_setup"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}

# Layers inside a package, from low to high. A module belongs to the longest prefix of its name.
INNER_LAYERS: dict[str, list[set[str]]] = {
    "kernels": [{"kernels"}, {"kernels.decoding"}],
    "attention": [
        {"attention.masks", "attention.normalisers", "attention.scores", "attention.cache"},
        {"attention.reference"},
        {"attention.backends"},
        {"attention"},
    ],
    "models": [{"models.contract", "models.parts"}, {"models.layers"}, {"models"}],
    "search": [
        {"search.hypothesis"},
        {"search.token_options"},
        {"search.constraints"},
        {"search"},
    ],
    "trace": [{"trace.operations"}, {"trace.program"}, {"trace"}],
}

LIBRARIES = {  # third-party libraries that only these packages import
    "triton": "attention/backends|kernels",
    "fastapi": "explore",
    "uvicorn": "explore|serve|web",
    "prometheus_client": "serve",
    "httptools": "web",
    "uvloop": "serve",
    "httpx2": "client",
    "matplotlib": "plots",
    "sklearn": "pooling",
    "tokenizers": "text|hub/run_onnx",
    "ctranslate2": "hub",
    "onnx": "hub",
    "onnxruntime": "hub/run_onnx",
    "transformers": "hub",
    "huggingface_hub": "hub",
    "cyclopts": "cli",
    "ray": "bulk",
}


def module_name(file: Path, source: Path = SOURCE) -> str:
    """The dotted name of a module inside the package; that of a package for its `__init__`."""
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(file): file for file in FILES}


def imports(file: Path, *, at_run_time: bool = False) -> Iterator[tuple[str, int]]:
    """The imported modules of a file and their lines.

    With `at_run_time`, only those that Python executes when it imports the file: not those inside
    functions or under TYPE_CHECKING.
    """
    for node in _executed(codebase.parsed(file).body) if at_run_time else codebase.nodes(file):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: use absolute imports"
            assert node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner.removeprefix("regard.") in MODULES
                yield (inner if is_module else node.module), node.lineno


def _executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements that run when a module is imported."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            checking = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            yield from _executed(node.orelse if checking else [*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [inner for handler in node.handlers for inner in handler.body]
            yield from _executed([*node.body, *handlers, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.ClassDef | ast.With):
            yield from _executed(node.body)


def inner_level(module: str) -> int:
    """The layer of a module inside its package."""
    layers = INNER_LAYERS.get(module.split(".")[0], [])
    fitting = [
        (len(prefix), level)
        for level, layer in enumerate(layers)
        for prefix in layer
        if f"{module}.".startswith(f"{prefix}.")
    ]
    return max(fitting, default=(0, 0))[1]


def forbidden_imports(files: list[Path], source: Path = SOURCE) -> Iterator[str]:
    """Imports that do not go to a lower layer."""
    for file in files:
        own = module_name(file, source)
        if own == "__init__":  # imports public names on first access only
            continue
        for imported, line in imports(file):
            if not imported.startswith("regard."):
                continue
            other = imported.removeprefix("regard.")
            package, other_package = own.split(".")[0], other.split(".")[0]
            allowed = LEVEL[other_package] < LEVEL[package]
            if package == other_package:
                allowed = inner_level(other) <= inner_level(own)
            if not allowed:
                yield f"{file.relative_to(source)}:{line}: {own} may not import {other}"


def test_imports_go_only_to_lower_layers():
    assert list(forbidden_imports(FILES)) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("positions/rotary.py", "from regard.attention import attend"),  # the same layer
        ("models/parts.py", "from regard.models.layers import norm"),  # inside a package
        ("kernels/swiglu.py", "from regard.kernels.decoding import buffers"),
        ("attention/masks.py", "import regard.attention.backends.sdpa"),
        ("search/beam.py", "def late():\n    from regard.inference import engines"),
    ],
)
def test_a_forbidden_import_is_found(file: str, line: str, tmp_path: Path):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(f"{line}\n")
    assert len(list(forbidden_imports([path], tmp_path))) == 1


def test_layers_list_exactly_the_existing_modules():
    names = {name.split(".")[0] for name in MODULES} - {"__init__"}
    assert set(LEVEL) == names
    prefixes = {prefix for layers in INNER_LAYERS.values() for layer in layers for prefix in layer}
    assert prefixes <= set(MODULES)
    homes = {home for homes in LIBRARIES.values() for home in homes.split("|")}
    assert {home.replace("/", ".") for home in homes} <= set(MODULES)


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other: removes modules without imports until none is left.

    What remains imports something that remains; every group of mutual imports is among it.
    """
    left = {module: set(others) for module, others in graph.items()}
    while free := [module for module, others in left.items() if not others & set(left)]:
        for module in free:
            del left[module]
    reached = {module: _reachable(module, left) for module in left}
    groups = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in left
        if module in reached[module]
    }
    return [set(group) for group in groups]


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module in graph and module not in found:
            found.add(module)
            waiting += graph[module]
    return found


def test_modules_import_each_other_in_no_cycle():
    graph = {
        module: {name.removeprefix("regard.") for name, _ in imports(file, at_run_time=True)}
        for module, file in MODULES.items()
    }
    assert cycles(graph) == []


def test_a_cycle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert cycles(graph) == [{"b", "c"}]


def test_importing_the_package_executes_no_other_module():
    names = [name for name, _ in imports(SOURCE / "__init__.py", at_run_time=True)]
    assert not [name for name in names if name.startswith("regard")]


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_imported_only_in_their_packages(library: str):
    for file in FILES:
        place = str(file.relative_to(SOURCE))
        for module, line in imports(file):
            if module.split(".")[0] == library:
                assert re.match(LIBRARIES[library], place), (
                    f"{place}:{line}: {library} belongs in {LIBRARIES[library]}"
                )


def test_files_have_at_most_300_lines():
    for file in FILES:
        lines = file.read_text(encoding="utf-8").count("\n")
        assert lines <= 300, f"{file.relative_to(ROOT)} has {lines} lines"


def test_functions_have_fewer_than_60_lines():
    for file in FILES:
        for node in codebase.nodes(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno
                assert lines < 60, f"{file}:{node.lineno}: {node.name} has {lines} lines"


def test_lines_have_at_most_100_columns():
    assert list(codebase.long_lines(codebase.all_files())) == []


def test_module_names_are_unique():
    assert list(codebase.duplicate_modules(FILES)) == []


def test_public_class_names_are_unique():
    assert list(codebase.duplicate_classes(FILES)) == []


def test_no_code_checks_for_a_model_family():
    assert list(codebase.family_checks(FILES)) == []


def test_capabilities_are_declared_not_probed():
    assert list(codebase.attribute_probes(FILES)) == []


def test_the_checks_find_what_they_look_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(codebase, "ROOT", tmp_path)
    monkeypatch.setattr(codebase, "SOURCE", tmp_path)
    text = "class A: ...\nisinstance(x, nn.Module | models.Transformer)\nhasattr(x, 'weights')\n"
    allowed = "hasattr(os, 'fork')\ngetattr(error, 'strerror', None)\ngetattr(x, 'y')\n"
    files = [tmp_path / folder / "same.py" for folder in ("one", "models")]
    for file in files:
        file.parent.mkdir()
        file.write_text(text + allowed + "#" * 101 + "\n")
    assert list(codebase.duplicate_modules(files)) == ["same: one/same.py, models/same.py"]
    assert list(codebase.duplicate_classes(files)) == ["A: one/same.py:1, models/same.py:1"]
    assert [found.split(":")[:2] for found in codebase.family_checks(files)] == [
        ["one/same.py", "2"]
    ]
    assert [found.split(":")[1] for found in codebase.attribute_probes(files)] == ["3", "3"]
    assert [found.split(":")[1] for found in codebase.long_lines(files)] == ["7", "7"]


def test_names_are_specific():
    vague = re.compile(r"(^|_)(utils?|helpers?|common|misc|base|manager)(_|$)")
    for file in FILES:
        assert not vague.search(file.stem), file
        for node in codebase.nodes(file):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                where = f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                assert not node.name.lstrip("_").startswith("get_"), where
                assert not vague.search(re.sub("(?<!^)([A-Z])", r"_\1", node.name).lower()), where


def test_public_names_have_docstrings():
    for file in FILES:
        tree = codebase.parsed(file)
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
    used = "regard.attend, regard.Ragged, regard.debug"  # names are imported on first access
    script = f"import regard, sys; {used}; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_test_checks_something():
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in codebase.nodes(file):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.unparse(node)
                checks = ("assert", "raises(", "close(", "gradcheck(", "check(", "warns(")
                assert any(word in text for word in checks), (
                    f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                )


def test_test_names_are_short_and_files_name_a_subject():
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        assert not file.stem.startswith("test_mended"), f"{file.name}: name the code it tests"
        for node in codebase.nodes(file):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                where = f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
                assert len(node.name) <= 60, f"{where} has {len(node.name)} characters"
