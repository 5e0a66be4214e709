"""The code blocks of the documentation and how the tests run them.

- `python`: executed; the blocks of a page share their variables. Each `print(…)  # text` must print
  exactly this text, unless the block uses `runs/demo`, a model that the tests train for seconds.
- `sh`: `regard …` runs in this process, other commands in a shell. `# → text` is the exact output.
  Trainings are shortened.
- `regard serve` and `regard explore` run as processes of their own until the page ends; later
  blocks of the page ask the first one.
- A title that is a file name: the block is written to this file.
- A title in `NOT_RUN`: the block is not run; readers see the title, too. One in `NOTES` is
  a note to them only.
- Other languages are only shown.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli import main
from tests.docs.page_servers import PageServer

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NOT_RUN = {
    "needs a GPU",
    "needs a network",
    "needs several machines",
    "needs public datasets",
    "installs packages",
}
NOTES = {"takes minutes", "opens a browser", "starts a server", "asks the server"}
ELSEWHERE = {  # slow commands that another check runs: its file and the words it has
    "regard demo": ("scripts/release_smoke.py", ["demo", "--minutes"]),
    "regard export runs/pairs --to onnx": ("tests/hub/test_onnx.py", ["export", "--to", "onnx"]),
    "torchrun --nproc-per-node 2 -m regard train pairs.tsv --device cpu --out runs/two-processes": (
        "tests/training/test_distributed.py",
        ["torch.distributed.run", "--nproc-per-node", "2", "-m", "regard"],
    ),
}
EXECUTED = {"python", "sh"}
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
SHORT = ["--steps", "6", "--size", "tiny", "--set", "train.evaluations=1"]
SIZE = ["--size", "tiny"]  # fixed by an initial model
LENGTHS = {"--steps", "--minutes", "--epochs", "--size"}


@dataclass(frozen=True)
class Block:
    """One code block of a page."""

    page: Path
    line: int
    language: str
    title: str
    code: str

    @property
    def file(self) -> str:
        """The name of the file that the block is written to, or nothing."""
        return self.title if re.fullmatch(r"[\w/.-]+\.\w+", self.title) else ""

    @property
    def is_run(self) -> bool:
        """Whether the tests run it."""
        return self.language in EXECUTED and (not self.title or self.title in NOTES)


def blocks_of(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        line = text[: match.start()].count("\n") + 1
        found.append(Block(page, line, match["language"], match["title"] or "", code))
    return found


def shortened(words: list[str]) -> list[str]:
    """A command whose training takes a few steps of a tiny model."""
    if words[0] not in {"train", "distill", "demo"} or "--help-settings" in words:
        return words
    pairs = zip(words, [*words[1:], ""], strict=True)
    skipped = {i + k for i, (word, _) in enumerate(pairs) if word in LENGTHS for k in (0, 1)}
    kept = [word for i, word in enumerate(words) if i not in skipped]
    return kept + [word for word in SHORT if "--from" not in words or word not in SIZE]


@dataclass
class Session:
    """Runs the blocks of one page in one folder."""

    folder: Path
    variables: dict
    servers: list[PageServer] = field(default_factory=list)

    def close(self) -> None:
        """Stop all servers."""
        while self.servers:
            self.servers.pop().stop()

    def here(self, code: str) -> str:
        """Code that asks the server which the page started first."""
        return self.servers[0].here(code) if self.servers else code

    def run(self, block: Block) -> None:
        """Execute or write a block; an exception or another output than shown is a failure."""
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        elif block.is_run and block.language == "python":
            self._python(block)
        elif block.is_run:
            for line in block.code.replace("\\\n", " ").splitlines():
                if line.strip() and not line.lstrip().startswith("#"):
                    self._command(line)

    def _python(self, block: Block) -> None:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = self.here(block.code)
            exec(compile(code, f"{block.page.name}:{block.line}", "exec"), self.variables)
        shown = re.findall(r"^\s*print\(.*\)  # (.*)", block.code, re.MULTILINE)
        if shown and "runs/demo" not in block.code:
            printed = [line.strip() for line in output.getvalue().split("\n") if line]
            assert printed == shown, f"printed {printed}, shown {shown}"

    def _command(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if shlex.join(words) in ELSEWHERE:
            return
        if words[0] == "regard" and words[1] in ("serve", "explore") and "--save" not in words:
            self.servers.append(PageServer.start(words[1:], self.folder))
            return
        simple = words[0] == "regard" and not {"|", ">", "<", "&&"} & set(words)
        output = self.regard(words[1:]) if simple else self._shell(self.here(line))
        if shown := re.search(r"# → (.*)", line):
            assert output.strip() == shown[1].strip(), f"{line}: printed {output!r}"

    def regard(self, words: list[str]) -> str:
        """The standard output of `regard …`, which must succeed."""
        output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        code: object = 0
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                main(shortened(words))
            except SystemExit as ended:
                code = ended.code
        assert code in (0, None), f"regard {shlex.join(words)}: {errors.getvalue()}"
        output.seek(0)
        return output.read()

    def _shell(self, line: str) -> str:
        bin = Path(sys.executable).parent
        path = f"{bin}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
        run = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, f"{line}: {run.stderr}"
        return run.stdout
