"""Files around a release: version, changelog, citation, licences, templates, CI and hooks."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import regard

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
YAML = sorted(
    path
    for path in (*ROOT.glob("*.cff"), *ROOT.glob(".*.yaml"), *(ROOT / ".github").rglob("*.yml"))
)


def load(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_version_is_written_once():
    assert re.fullmatch(r"\d+\.\d+\.\d+", regard.__version__)
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/regard/__init__.py"
    assert "version" not in PROJECT["project"]


def test_the_changelog_begins_with_this_version():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    versions = [line.split()[1] for line in lines if line.startswith("## ")]
    assert versions[:2] == ["Unreleased", regard.__version__]
    sections = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert "Added" in sections
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_parses(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_the_citation_has_what_its_format_requires():
    """Required keys of the Citation File Format 1.2.0, and the allowed values of those used."""
    citation = load("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"]
    assert citation["type"] in ("software", "dataset")
    assert citation["authors"]
    for author in citation["authors"]:
        assert "name" in author or {"family-names", "given-names"} <= set(author)
    assert str(citation["version"]) == regard.__version__
    assert citation["license"] in PROJECT["project"]["license"].split(" AND ")
    optional = {"keywords", "abstract", "date-released", "doi", "url", "repository-code"}
    required = {"cff-version", "message", "title", "type", "authors", "version", "license"}
    assert required <= set(citation) <= required | optional


def test_ci_runs_make_test_on_all_systems_and_versions():
    workflow = load(".github/workflows/test.yml")
    assert {"push", "pull_request"} <= set(workflow[True])  # YAML 1.1 reads the key `on` as true
    job = workflow["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    linux = [name for name in matrix["os"] if name.startswith("ubuntu")]
    assert any(name.endswith("-arm") for name in linux)
    assert any(not name.endswith("-arm") for name in linux)
    assert any(name.startswith("macos") for name in matrix["os"])
    classifiers = PROJECT["project"]["classifiers"]
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in classifiers
    ]
    assert matrix["python"] == [one[1] for one in named if one] == ["3.11", "3.12", "3.13", "3.14"]
    assert [step["run"].split()[:2] for step in job["steps"] if "run" in step] == [["make", "test"]]


def test_hooks_run_what_make_test_runs():
    (local,) = load(".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"].replace(".venv/bin/", "$(BIN)/") for hook in local["hooks"]]
    makefile = (ROOT / "Makefile").read_text()
    for tool in ("$(BIN)/ruff format", "$(BIN)/ruff check", "$(BIN)/mypy"):
        assert any(entry.startswith(tool) for entry in entries)
        assert f"\t{tool}" in makefile


def test_issue_templates_have_required_questions():
    for name in ("bug", "feature"):
        template = load(f".github/ISSUE_TEMPLATE/{name}.yml")
        assert template["name"]
        assert template["description"]
        kinds = {one["type"] for one in template["body"]}
        assert kinds <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        ids = [one["id"] for one in template["body"] if one["type"] != "markdown"]
        assert len(ids) == len(set(ids)) > 0
        assert any(one.get("validations", {}).get("required") for one in template["body"])


def test_the_notice_names_every_bundled_work():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    data = ROOT / "src/regard/data"
    models = [folder.name for folder in sorted((data / "models").iterdir())]
    assert models == [
        "english-german",
        "english-german-recurrent",
        "english-german-recurrent.film.safetensors",
        "spelling",
        "spelling-recurrent",
    ]
    for name in ("cmudict.tsv.xz", "LICENSE.cmudict", "Svelte", "clsx", *models):
        assert name in notice, name
    copyright_line = (data / "LICENSE.cmudict").read_text().splitlines()[0]
    assert copyright_line in notice
    for path in re.findall(r"src/regard/[\w./-]*\w", notice):
        assert (ROOT / path).exists(), path


def test_community_files_link_to_files_that_exist():
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", ".github/PULL_REQUEST_TEMPLATE.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert len(text.split()) > 50
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), f"{name} links to {target}"
