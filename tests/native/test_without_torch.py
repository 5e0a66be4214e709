"""The native engine in processes in which torch cannot be imported.

The expected outputs are those of the torch engine, computed in this process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.cli import main
from tests.native.native_models import TOLERANCE

WORDS = ["attention", "queue", "rhythm", "a", "transformer"]
PAIRS = "attention\tAH T EH N SH AH N\nqueue\tK Y UW\nrhythm\tR IH TH M\na\tAH\n"
BLOCK = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, NoTorch())
"""


def run(script: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess:
    """Run a script in a process without torch, on a CPU."""
    command = [sys.executable, "-c", BLOCK + script, *words]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=600, env=environment
    )


def run_command(*words: str, stdin: str = "") -> str:
    """The output of a `regard` command in a process without torch."""
    done = run("from regard.cli import main; main()", *words, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_on_torch(capsysbinary: pytest.CaptureFixture, *words: str) -> str:
    """The output of the same command on the torch engine."""
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--engine", "torch", "--device", "cpu"])
    return capsysbinary.readouterr().out.decode()


def test_torch_is_blocked():
    done = run("import regard.models")
    assert "torch is blocked" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--beam", "1"],
        ["--beam", "8", "--length-penalty", "1"],
        ["--ban", "SH", "--min-length", "3", "--no-repeat-ngram", "1"],
        ["--require", "ZH", "--prefix", "AH", "--max-length", "12", "--repetition-penalty", "2"],
        ["--sample", "--seed", "7", "--temperature", "0.7", "--top-k", "9"],
    ],
    ids=" ".join,
)
def test_predict_gives_the_outputs_of_torch(options: list[str], capsysbinary):
    words = ["predict", "spelling", *WORDS[:3], *options]
    assert run_command(*words) == run_on_torch(capsysbinary, *words)


def test_n_best_lists_and_scores_are_those_of_torch(capsysbinary):
    words = ["predict", "spelling-recurrent", *WORDS, "--n-best", "3"]
    ours, theirs = (
        [line.split("\t") for line in text.splitlines()]
        for text in (run_command(*words), run_on_torch(capsysbinary, *words))
    )
    assert [(number, text) for number, _, text in ours] == [(n, text) for n, _, text in theirs]
    scores = [float(score) for _, score, _ in theirs]
    assert [float(score) for _, score, _ in ours] == pytest.approx(scores, abs=TOLERANCE)


def test_files_tables_and_pipes_are_predicted(tmp_path: Path, capsysbinary):
    expected = run_on_torch(capsysbinary, "predict", "spelling", *WORDS)
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    files = ["--input", str(tmp_path / "words.txt"), "--output", str(tmp_path / "out.txt")]
    assert run_command("predict", "spelling", *files) == ""
    assert (tmp_path / "out.txt").read_text() == expected
    assert run_command("predict", "spelling", stdin="\n".join(WORDS)) == expected
    rows = "".join(f"{word},{n}\n" for n, word in enumerate(WORDS))
    (tmp_path / "words.csv").write_text("word,number\n" + rows)
    table = ["--input", str(tmp_path / "words.csv"), "--column", "word"]
    answers = run_command("predict", "spelling", *table).splitlines()[1:]
    assert answers == [",".join(pair) for pair in zip(WORDS, expected.splitlines(), strict=True)]


def test_evaluate_reports_the_metrics_of_torch(tmp_path: Path, capsysbinary):
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    words = ["evaluate", "spelling", str(tmp_path / "pairs.tsv")]
    ours = json.loads(run_command(*words, "--json"))
    theirs = json.loads(run_on_torch(capsysbinary, *words, "--json"))
    for name in ("seconds", "per_second"):
        del ours[name], theirs[name]
    assert ours == theirs
    assert "phone error rate" in run_command(*words)


def test_score_reports_the_numbers_of_torch(tmp_path: Path, capsysbinary):
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    words = ["score", "spelling", str(tmp_path / "pairs.tsv"), "--json"]
    done = run("from regard.cli import main; main()", *words)
    assert done.returncode == 0, done.stderr
    texts = (done.stdout, run_on_torch(capsysbinary, *words))
    both = ([json.loads(line) for line in text.splitlines()] for text in texts)
    for ours, theirs in zip(*both, strict=True):
        expected = theirs.pop("logps"), theirs.pop("logp")
        assert ours.pop("logps") == pytest.approx(expected[0], abs=TOLERANCE)
        assert ours.pop("logp") == pytest.approx(expected[1], abs=TOLERANCE)
        assert ours == theirs


def test_inspect_and_version_name_the_kernels():
    kernels = regard.native.kernel_names()[0]
    facts = json.loads(run_command("inspect", "spelling", "--json"))
    assert facts["engine"] == f"native engine: {kernels} kernels"
    model = regard.load("spelling", engine="torch").model
    assert sum(facts["parameters"].values()) == sum(one.numel() for one in model.parameters())
    assert f"engine on a CPU: native engine: {kernels}" in run_command("inspect", "spelling")
    version = f"{regard.__version__}\nnative engine: {kernels} kernels\n"
    assert run_command("--version") == version


def test_python_loads_answers_and_samples():
    script = f"""
import json, pickle, regard
t = regard.load("spelling")
found = {{
    "many": [answer.text for answer in t.many({WORDS})],
    "best": [answer.text for answer in t.best("attention", n=3)],
    "sample": [answer.text for answer in t.sample("attention", n=3, seed=5)],
    "logps": t("attention").logps,
    "stream": list(t.stream("attention")),
    "score": t.score("attention", "AH T").logps,
    "pickled": pickle.loads(pickle.dumps(t))("attention").logps,
}}
print(json.dumps(found))
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    found, t = json.loads(done.stdout), regard.load("spelling", engine="torch")
    assert found["many"] == [answer.text for answer in t.many(WORDS)]
    assert found["best"] == [answer.text for answer in t.best("attention", n=3)]
    assert found["sample"] == [one.text for one in t.sample("attention", n=3, seed=5)]
    assert found["logps"] == pytest.approx(t("attention").logps, abs=TOLERANCE)
    assert found["pickled"] == found["logps"]
    assert "".join(found["stream"]) == t("attention").text
    assert found["score"] == pytest.approx(t.score("attention", "AH T").logps, abs=TOLERANCE)
