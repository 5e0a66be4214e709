"""Write the lessons of the explorer as notebooks, from the same texts and the same Python code.

    python scripts/lesson_notebooks.py    # writes examples/notebooks/lessons

Each has the question and its options, the code with its output, and the explanation.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "explorer/src"
FOLDER = ROOT / "examples/notebooks/lessons"
ENTRY = re.compile(r'entry\(\s*"(\w+)",\s*"(\w+)",\s*"([^"]+)",\s*"([^"]+)",?\s*\)')
CONCATENATION = re.compile(r'"\s*\+\s*"')
KEY = re.compile(r"^  (\w+):", re.MULTILINE)
TABLE_TITLE = re.compile(r"[^.]*:$")  # the page has a table after it
TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def lessons() -> list[tuple[str, str, str, str]]:
    """Number, id, title and question of each lesson."""
    return ENTRY.findall((SOURCE / "lib/lesson-list.ts").read_text(encoding="utf-8"))


def lesson_texts(id: str) -> dict[str, Any]:
    """The texts of a lesson, read from its TypeScript object."""
    code = (SOURCE / f"lessons/texts/{id}.en.ts").read_text(encoding="utf-8")
    start = code.index("{", code.index("export const texts"))
    literal = code[start : code.index("\n};", start) + 2]
    literal = KEY.sub(r'  "\1":', CONCATENATION.sub("", literal))
    return json.loads(TRAILING_COMMA.sub(r"\1", literal))


def notebook_path(number: str, id: str) -> Path:
    """Where the notebook of a lesson is stored."""
    return FOLDER / f"{int(number):02d}_{id}.ipynb" if number != "A" else FOLDER / f"A_{id}.ipynb"


def make(number: str, id: str, title: str, question: str) -> nbformat.NotebookNode:
    """The notebook of a lesson with the output of its code."""
    texts = lesson_texts(id)
    about, code = lesson_code(id)
    heading = title if number == "A" else f"Lesson {number}: {title}"
    options = "\n".join(f"- {option}" for option in texts["options"])
    first, *rest = texts["explain"]
    papers = "\n".join(f"- {paper}" for paper in texts["papers"])
    sections = [
        f"# {heading}\n\n{question} {texts['lead']}\n\nIt needs Regard: `pip install regard`. "
        f"`regard lesson {number}` opens this lesson with live pictures.",
        f"## Guess\n\n{texts['question']}\n\n{options}",
        f"## Do\n\n{about} Change the numbers and run it again.",
        f"## See\n\n{TABLE_TITLE.sub('', texts['seen']).strip()}",
        "\n\n".join(["## Explain", f"**{first}**", *rest, f"`{texts['formula']}`", papers]),
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"{id}.py", "exec"), {"__name__": "lesson"})
    output = new_output("stream", name="stdout", text=printed.getvalue())
    cells = [new_markdown_cell(text) for text in sections]
    cells.insert(3, new_code_cell(code, execution_count=1, outputs=[output]))
    for at, cell in enumerate(cells):
        cell["id"] = f"{id}-{at}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(
        cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}}
    )


def lesson_code(id: str) -> tuple[str, str]:
    """The docstring of a lesson's code, and the code without it."""
    code = (SOURCE / f"lessons/python/{id}.py").read_text(encoding="utf-8")
    first = ast.parse(code).body[0]
    assert isinstance(first, ast.Expr)
    about = ast.get_docstring(ast.parse(code)) or ""
    return " ".join(about.split()), "\n".join(code.splitlines()[first.end_lineno :]).strip()


def main() -> None:
    """Write all notebooks."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, id, title, question in lessons():
        path, made = notebook_path(number, id), make(number, id, title, question)
        nbformat.validate(made)
        nbformat.write(made, path)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
