"""Word-analogy questions: the file format and the accuracy of a table (Mikolov et al. 2013,
4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError
from regard.vectors.vector_files import open_binary

Question = tuple[str, str, str, str]


@dataclass(frozen=True)
class Section:
    """The results of one section. A question with a word outside the table is `unknown`, not
    wrong."""

    name: str
    right: int = 0
    wrong: int = 0
    unknown: int = 0

    @property
    def questions(self) -> int:
        """The number of questions, including unknown ones."""
        return self.right + self.wrong + self.unknown

    @property
    def accuracy(self) -> float | None:
        """The share of right answers among known questions, as in the papers; None without any."""
        known = self.right + self.wrong
        return self.right / known if known else None


@dataclass(frozen=True)
class Accuracy:
    """The results of a table by section and in total; `print` shows them as a table."""

    sections: tuple[Section, ...]

    @property
    def all(self) -> Section:
        """The total over all sections."""
        counts = ((section.right, section.wrong, section.unknown) for section in self.sections)
        return Section("all", *map(sum, zip(*counts, strict=True)))

    def __str__(self) -> str:
        rows = [("section", "accuracy", "right", "wrong", "unknown")]
        for section in (*self.sections, self.all):
            share = "–" if section.accuracy is None else f"{section.accuracy:.1%}"
            right, wrong = str(section.right), str(section.wrong)
            rows.append((section.name, share, right, wrong, str(section.unknown)))
        width = max(len(row[0]) for row in rows)
        return "\n".join(
            f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in cells) for name, *cells in rows
        )


def tally(name: str, outcomes: Iterable[bool | None]) -> Section:
    """Count the outcomes of a section: True is right, False is wrong, None is unknown."""
    outcomes = list(outcomes)
    return Section(name, outcomes.count(True), outcomes.count(False), outcomes.count(None))


def read_questions(path: str | Path) -> dict[str, list[Question]]:
    """The questions by section. A line `: name` starts a section; any other line has four words `a
    b c d` (a is to b as c is to d). Questions before the first section belong to section "".
    """
    sections: dict[str, list[Question]] = {}
    name = ""
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                words = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
            except UnicodeDecodeError as error:
                raise RegardError(f"{path}:{number}: not UTF-8 text: {error.reason}") from None
            if not words:
                continue
            if words[0].startswith(":"):
                name = " ".join(words).removeprefix(":").strip()
                sections.setdefault(name, [])
            elif len(words) == 4:
                sections.setdefault(name, []).append((words[0], words[1], words[2], words[3]))
            else:
                raise RegardError(f"{path}:{number}: a question has four words; got {len(words)}")
    if not any(sections.values()):
        raise RegardError(f"{path}: no questions; a question is a line of four words")
    return sections
