"""Stages the pages of the site in build/docs: docs/ and the repository files that they link to.

A link to a Python file, a test or a setting file becomes a link to a page that shows the file, at
the line of the named function (`tests/facts/test_000.py#test_name`). The same link works on a code
host. A link to a file or a name that does not exist is an error.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RAW = {".json", ".txt", ".png", ".svg", ".html"}  # copied as they are
LINK = re.compile(r"(?<=\])\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$|(?<!`)`[^`\n]+`(?!`)", re.MULTILINE | re.DOTALL)
HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"
LANGUAGES = {".py": "python", ".toml": "toml", ".cpp": "cpp", ".h": "cpp", ".tsv": "text"}


class BrokenLink(Exception):
    """A link to a file or a name that does not exist."""


def without_code(text: str) -> str:
    """The text with code blocks and code spans blanked, at unchanged positions."""
    return CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def definition_line(file: Path, name: str) -> int:
    """The line, from 1, on which a Python file defines a function or a class."""
    pattern = re.compile(rf"\s*(?:async )?(?:def|class) {re.escape(name)}\b|{re.escape(name)}\b")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if pattern.match(line):
            return number
    raise BrokenLink(f"{file.relative_to(ROOT)} does not define {name}")


class Stage:
    """Copies pages to a folder; adds the files that they link to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staged: set[Path] = set()

    def page(self, file: Path) -> Path:
        """Stage one Markdown page with its links, and return its place."""
        place = self.place(file)
        if place in self.staged:
            return place
        self.staged.add(place)
        text = file.read_text(encoding="utf-8")
        head = "" if file.is_relative_to(DOCS) else HIDDEN
        self._write(place, head + self.with_links(text, file, place))
        return place

    def place(self, file: Path) -> Path:
        """Where a file of the repository goes."""
        if file.is_relative_to(DOCS):
            return self.folder / file.relative_to(DOCS)
        path = self.folder / "source" / file.relative_to(ROOT)
        if file.is_dir():
            return path / "index.md"
        return path if file.suffix in {".md", *RAW} else path.with_name(path.name + ".md")

    def with_links(self, text: str, file: Path, place: Path) -> str:
        """The text of a page with links that are right at its place."""
        plain = without_code(text)
        pieces, end = [], 0
        for match in LINK.finditer(plain):
            target = (file.parent / match[1]).resolve()
            if target.parent == DOCS / "figures":  # drawn by drawings.py when the site is built
                continue
            if not target.exists() or not target.is_relative_to(ROOT):
                raise BrokenLink(f"{file.relative_to(ROOT)} links to {match[1]}, which is missing")
            anchor = match[2] or ""
            linked = self.add(target)
            if anchor and target.suffix == ".py":
                anchor = f"#__codelineno-0-{definition_line(target, anchor[1:])}"
            pieces += [
                text[end : match.start()],
                f"({os.path.relpath(linked, place.parent)}{anchor})",
            ]
            end = match.end()
        return "".join([*pieces, text[end:]])

    def add(self, file: Path) -> Path:
        """Stage a linked file, and return its place."""
        if file.suffix == ".md":
            return self.page(file)
        place = self.place(file)
        if place not in self.staged:
            self.staged.add(place)
            if file.is_dir():
                self._folder(file, place)
            elif file.suffix in RAW:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
            else:
                language = LANGUAGES.get(file.suffix, "text")
                text = file.read_text(encoding="utf-8")
                title = f"# {file.relative_to(ROOT)}\n\n"
                fence = f'`````{language} linenums="1"\n{text.rstrip()}\n`````\n'
                self._write(place, HIDDEN + title + fence)
        return place

    def _folder(self, folder: Path, place: Path) -> None:
        """A page that lists the files of a folder."""
        names = sorted(
            file
            for file in folder.iterdir()
            if file.is_file() and file.suffix in {".md", *RAW, *LANGUAGES} and file.stem[0] != "_"
        )
        rows = [
            f"- [{file.name}]({os.path.relpath(self.add(file), place.parent)})" for file in names
        ]
        title = f"# {folder.relative_to(ROOT)}\n\n"
        self._write(place, HIDDEN + title + "\n".join(rows) + "\n")

    @staticmethod
    def _write(place: Path, text: str) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def stage(folder: Path) -> Path:
    """Stage all pages of docs/ and what they link to; other files of docs/ only if linked."""
    shutil.rmtree(folder, ignore_errors=True)
    staging = Stage(folder)
    for page in sorted(DOCS.rglob("*.md")):
        staging.page(page)
    shutil.copytree(DOCS / "assets", folder / "assets")
    return folder
