"""Kills of `regard train` and `regard predict`, in forked processes: torch is loaded only once."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch._dynamo  # noqa: F401 (what operations on the meta device import)
from torture_pool import Subject, clear

# Imported before any fork: each takes seconds.
import regard.api
import regard.cli
import regard.commands.predict
import regard.inference.torch_engine
import regard.reports
import regard.training.run

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod")
CHAIN = 3  # kills in a row, after every operation had its own
TINY = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 16}


@dataclass(frozen=True)
class Kill:
    """When to kill: before a file operation (from 1), or after a number of seconds."""

    operation: int = 0
    seconds: float = 0.0


class Operations:
    """Counts the file operations of this process below a folder, and ends it before one."""

    def __init__(self, folder: Path, last: int = 0) -> None:
        self.count, self._last, self._folder = 0, last, str(folder)
        sys.addaudithook(self._audit)
        fsync = os.fsync

        def counted_fsync(descriptor: Any) -> None:
            self._pass()
            fsync(descriptor)

        os.fsync = counted_fsync  # it has no audit event

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS and str(arguments[0]).startswith(self._folder):
            self._pass()

    def _pass(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def run_command(words: Sequence[str], folder: Path, kill: Kill | None = None) -> tuple[int, int]:
    """Run a command in a forked process, perhaps killed: its exit code, and its file operations.

    What it prints is appended to `log`, beside the folder.
    """
    log = folder.parent / "log"
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _run_child(words, folder, kill, log, writer)
    os.close(writer)
    if kill is not None and kill.seconds:
        time.sleep(kill.seconds)
        os.kill(child, signal.SIGKILL)
    with open(reader) as pipe:
        counted = int(pipe.read() or 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), counted


def _run_child(
    words: Sequence[str], folder: Path, kill: Kill | None, log: Path, writer: int
) -> None:
    """The forked process; it never returns."""
    code = 70
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        regard.commands.output_files.SAVE_SECONDS = 0.0
        operations = Operations(folder, 0 if kill is None else kill.operation)
        try:
            regard.cli.main(list(words))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        os.write(writer, str(operations.count).encode())
        if kill is None:
            (folder.parent / "modules").write_text("\n".join(sorted(sys.modules)))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Kills(Subject):
    """Kills of a command. Subclasses say which one, and what it leaves."""

    kills = True
    block = 1
    variants: ClassVar[dict[str, list[str]]]

    def words(self, variant: str, folder: Path) -> list[str]:
        """The command of a variant, which writes to a folder."""
        raise NotImplementedError

    def result(self, folder: Path) -> dict[str, str]:
        """What a complete command leaves in its folder: names and digests of its files."""
        raise NotImplementedError

    def build(self, prepared: Path) -> None:
        """Write the inputs of the command."""
        raise NotImplementedError

    def prepare(self) -> None:
        """An undisturbed run of each variant: its result, operations and seconds."""
        prepared = self.work / "prepared"
        prepared.mkdir(exist_ok=True)
        self.build(prepared)
        for variant in self.variants:
            folder = prepared / variant / "run"
            for _ in range(2):  # the first run imports, the second is timed
                clear(folder)
                start = time.monotonic()
                code, count = run_command(self.words(variant, folder), folder)
                seconds = time.monotonic() - start
                assert code == 0, (prepared / variant / "log").read_text()
                self.preload()
            facts = {"result": self.result(folder), "operations": count, "seconds": seconds}
            (prepared / f"{variant}.json").write_text(json.dumps(facts))

    def preload(self) -> None:
        """Import what the undisturbed runs have imported."""
        for path in (self.work / "prepared").glob("*/modules"):
            for name in path.read_text().splitlines():
                with suppress(Exception):
                    importlib.import_module(name)

    def run(self, case: int, folder: Path) -> dict[str, int]:
        """Some kills, a resume, and the comparison."""
        draw = random.Random(f"{self.seed} {type(self).__name__} {case}")
        names = sorted(self.variants)
        variant = names[case % len(names)]
        known = json.loads((self.work / f"prepared/{variant}.json").read_text())
        own = folder / "run"
        own.mkdir()
        words, delivered = self.words(variant, own), 0
        plan = self._plan(case // len(names), known, draw)
        for kill in plan:
            code, _ = run_command(words, own, kill)
            assert code in (0, -signal.SIGKILL), f"exit code {code}: {_last_line(folder)}"
            delivered += code == -signal.SIGKILL
        code, _ = run_command(words, own)
        printed = (folder / "log").read_text()
        assert code == 0, f"{variant} {plan}: exit code {code}: {_last_line(folder)}"
        assert "Traceback" not in printed, f"{variant} {plan}: {printed[-500:]}"
        found, expected = self.result(own), known["result"]
        names = {name for name in {**found, **expected} if found.get(name) != expected.get(name)}
        assert not names, f"{variant} {plan}: {sorted(names)} differ"
        return {"kills": delivered, f"kills of {variant}": delivered}

    def _plan(self, number: int, known: dict[str, Any], draw: random.Random) -> list[Kill]:
        """Every operation once, then chains of random operations and moments."""
        if number < known["operations"]:
            return [Kill(operation=number + 1)]
        return [
            Kill(operation=draw.randint(1, known["operations"]))
            if draw.random() < 0.5
            else Kill(seconds=draw.uniform(0.0, known["seconds"]) + 1e-4)
            for _ in range(CHAIN)
        ]


class TrainingKills(Kills):
    """Kills of training runs of some steps, with two kinds of models and optimizers."""

    variants: ClassVar[dict[str, list[str]]] = {
        "transformer": ["train.optimizer=muon", "train.weight_average=ema"],
        "recurrent": ["train.optimizer=adamw", "train.weight_average=last"],
    }

    def build(self, prepared: Path) -> None:
        draw = random.Random(0)
        words = {"".join(draw.choices("abcd", k=draw.randint(2, 5))) for _ in range(60)}
        lines = (f"{word}\t{word[::-1]}\n" for word in sorted(words))
        (prepared / "pairs.tsv").write_text("".join(lines))

    def words(self, variant: str, folder: Path) -> list[str]:
        sizes = TINY if variant == "transformer" else {"width": 16}
        settings = [f"model.{name}={value}" for name, value in sizes.items()]
        settings += [*self.variants[variant], "train.batch_tokens=192", "train.evaluations=2"]
        settings += ["text.max_tokens=8", "train.checkpoint_seconds=0"]
        given = [word for one in settings for word in ("--set", one)]
        data = str(self.work / "prepared/pairs.tsv")
        words = ["train", data, "--out", str(folder), "--size", "tiny", "--steps", "6"]
        return [*words, "--family", variant, "--device", "cpu", *given]

    def result(self, folder: Path) -> dict[str, str]:
        from safetensors import safe_open

        newest = max((folder / "checkpoints").glob("*.safetensors"))
        found: dict[str, str] = {}
        for path, name in (
            (folder / "bundle/weights.safetensors", "weights"),
            (newest, "last checkpoint"),
        ):
            digest = hashlib.sha256()
            with safe_open(path, framework="numpy") as file:
                for key in sorted(file.keys()):
                    digest.update(key.encode() + file.get_tensor(key).tobytes())
            found[name] = digest.hexdigest()
        card = json.loads((folder / "bundle/card.json").read_text())
        found["card"] = json.dumps([card[name] for name in ("metrics", "steps", "tokens")])
        found["held_out.jsonl"] = _digest(folder / "held_out.jsonl")
        found |= {f"ids/{one.name}": _digest(one) for one in (folder / "data/ids").iterdir()}
        for path in folder.rglob("*"):
            if path.is_file() and path.parent.name not in ("checkpoints", "ids"):
                found[f"{path.relative_to(folder)} exists"] = "yes"
        checkpoints = sorted(one.suffix for one in (folder / "checkpoints").iterdir())
        return {**found, "checkpoints": str(checkpoints)}


class PredictKills(Kills):
    """Kills of predict: text, JSON lines, a table, a shard, and compressed input."""

    variants: ClassVar[dict[str, list[str]]] = {
        "text": ["--input", "words.txt", "--output", "out.txt"],
        "json": ["--input", "words.txt.gz", "--output", "out.jsonl", "--json", "--n-best", "2"],
        "table": ["--input", "words.csv", "--output", "out.csv", "--scores"],
        "shard": ["--input", "words.txt", "--output", "out.txt", "--shard", "2/3"],
    }

    def build(self, prepared: Path) -> None:
        import gzip
        import shutil

        trained = TrainingKills(self.work / "training", self.seed)
        (trained.work / "prepared").mkdir(parents=True, exist_ok=True)
        trained.build(trained.work / "prepared")
        folder = prepared / "model/run"
        folder.mkdir(parents=True, exist_ok=True)
        code, _ = run_command(trained.words("transformer", folder), folder)
        assert code == 0, (prepared / "model/log").read_text()
        shutil.copytree(folder / "bundle", prepared / "bundle", dirs_exist_ok=True)
        draw = random.Random(1)
        lines = ["".join(draw.choices("abcd", k=draw.randint(0, 6))) for _ in range(700)]
        text = "".join(f"{line}\n" for line in lines)
        (prepared / "words.txt").write_text(text)
        (prepared / "words.txt.gz").write_bytes(gzip.compress(text.encode()))
        rows = "".join(f"{line or 'x'},other\n" for line in lines)
        (prepared / "words.csv").write_text(f"source,note\n{rows}")

    def words(self, variant: str, folder: Path) -> list[str]:
        prepared, words = self.work / "prepared", list(self.variants[variant])
        words[1], words[3] = str(prepared / words[1]), str(folder / words[3])
        return ["predict", str(prepared / "bundle"), *words, "--device", "cpu", "--beam", "2"]

    def result(self, folder: Path) -> dict[str, str]:
        # The record of a shard names its folder; it is compared by `regard join`.
        files = sorted(folder.iterdir())
        return {one.name: "" if one.suffix == ".progress" else _digest(one) for one in files}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _last_line(folder: Path) -> str:
    lines = (folder / "log").read_text().splitlines() or [""]
    return lines[-1][:300]
