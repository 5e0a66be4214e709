"""Shell completion: the script is used by a real bash, and installed where the shell reads it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from regard.cli import app
from tests.commands.small import regard

COMMANDS = sorted(name for name in app if not name.startswith("-"))
# Calls the completion function as bash does when the user presses Tab after the given words.
PRESS_TAB = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p regard | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" regard "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(capsys, tmp_path) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    out, _ = regard(capsys, "completion", "bash")
    path = tmp_path / "regard.bash"
    path.write_text(out)
    return path


def press_tab(script: Path, *words: str) -> list[str]:
    command = ["bash", "--norc", "-c", PRESS_TAB, "bash", str(script), "regard", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=script.parent, timeout=60
    )
    assert done.stderr == ""
    return sorted(done.stdout.split())


def test_bash_completes_commands(script):
    assert press_tab(script, "pre") == ["predict"]
    assert press_tab(script, "e") == ["evaluate", "explore", "export"]
    assert [one for one in press_tab(script, "") if not one.startswith("-")] == COMMANDS


def test_bash_completes_options_of_the_command(script):
    assert press_tab(script, "predict", "--n-") == ["--n-best"]
    assert press_tab(script, "train", "--held") == ["--held-out", "--held-out-targets"]
    assert press_tab(script, "train", "--n-") == []


def test_bash_completes_choices_and_files(script):
    assert press_tab(script, "completion", "z") == ["zsh"]
    (script.parent / "pairs.tsv").touch()
    assert press_tab(script, "train", "pai") == ["pairs.tsv"]


@pytest.mark.parametrize(("shell", "part"), [("zsh", "#compdef regard"), ("fish", "complete -c")])
def test_scripts_of_other_shells_name_all_commands(shell, part, capsys):
    out, _ = regard(capsys, "completion", shell)
    assert part in out
    assert [name for name in COMMANDS if name not in out] == []


def test_install_writes_where_the_shell_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    out, _ = regard(capsys, "completion", "fish", "--install")
    path = tmp_path / ".config/fish/completions/regard.fish"
    assert str(path) in out
    assert "complete -c regard" in path.read_text()


def test_an_unknown_shell_is_an_error(capsys):
    _, err = regard(capsys, "completion", "tcsh", code=2)
    assert "bash" in err
    assert len(err.splitlines()) == 1
