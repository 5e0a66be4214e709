"""The FAQ and the prose of all pages: quoted messages and named options are those of the code."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.page_blocks import PAGES, ROOT

FAQ = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
HOLE = "\0"  # a value that an f-string inserts
SHELLS = {"command not found: regard"}
JOINED = {  # messages that are put together, and their parts
    "engine on a CPU: torch, because the native engine is missing: it was not compiled": [
        "engine on a CPU: ",
        "the native engine is missing: ",
        "it was not compiled",
    ],
    "unknown normaliser 'softmax-one' … pass its file with --import FILE": [
        "unknown normaliser 'softmax-one'",
        "pass its file with --import FILE",
    ],
}
HELP = "docs/reference/cli.md"


def quoted(text: str) -> list[str]:
    """The code in the bold question of each entry."""
    questions = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE | re.DOTALL)
    return [code for question in questions for code in re.findall(r"`([^`]+)`", question)]


def literal(node: ast.AST) -> str | None:
    """The text of a string, an f-string or their concatenation, with holes for values."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(literal(value) or HOLE for value in values)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return f"{literal(left) or HOLE}{literal(right) or HOLE}"
    return None


def messages() -> list[str]:
    """All texts in the code of the package."""
    found = []
    for file in sorted((ROOT / "src/regard").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if text := literal(node):
                found.append(text)
    return found


def occurs(message: str, texts: list[str]) -> bool:
    """Whether a text of the code can read like this: numbers, quoted names and … are values."""
    pattern = re.sub(r"'[^']*'|\d+|…|normaliser", "\1", message)
    pattern = re.escape(pattern).replace(re.escape("\1"), ".*")
    filled = (re.escape(text).replace(re.escape(HOLE), ".*") for text in texts if len(text) > 20)
    return any(re.search(pattern, text) for text in texts) or any(
        re.search(text, message) for text in filled
    )


def test_the_messages_of_the_faq_are_those_of_the_code():
    texts = messages()
    codes = [code for code in quoted(FAQ) if " " in code and not code.startswith("regard ")]
    assert set(JOINED) | SHELLS <= set(codes)
    parts = [part for code in codes if code not in SHELLS for part in JOINED.get(code, [code])]
    assert len(parts) >= 14
    assert [part for part in parts if not occurs(part, texts)] == []
    assert not occurs("this message does not exist", texts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_in_prose_exist(page: Path):
    sources = [(ROOT / HELP), *(ROOT / "benchmarks").rglob("*.py")]
    texts = "".join(source.read_text(encoding="utf-8") for source in sources)
    known = {"--version", *re.findall(r"--[a-z][a-z0-9-]+", texts)}
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = {
        option
        for code in re.findall(r"`([^`\n]+)`", prose)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", code)
        if not re.match(r"(pip|python|make|torchrun|docker|kubectl|pytest|git|ray) ", code)
    }
    assert sorted(named - known) == []
