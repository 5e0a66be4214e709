"""Fuzzed data files: pairs and lines in every format, mutated, read as the commands read them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torture_bundles import damage, snapshot
from torture_pool import Subject

from regard.commands.clean import clean
from regard.commands.input_files import FileInputs
from regard.commands.options import CleaningRules
from regard.config import read_toml
from regard.errors import RegardError
from regard.text import Corpus, TokenizedPairs, Tokenizer, tokenize_corpus, train_tokenizer

LONGEST_MESSAGE = 2_000
ALPHABETS = (
    "abcdefgh ",
    "äöüßéàñ ",
    "привет дом",
    "日本語東京猫",
    "a\u0301e\u0308 \u200d🙂",
    "\"',;|\t",
)
SPECIAL = (
    *(b"\0", b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", b"\r"),
    *(b"\r\n", b"\n\n\n", b'"', b'""', b'"\n', b"\t\t\t", b",", b";", b"\\", b"{", b"[" * 5_000),
    *(b"a" * 70_000, b"NaN", b"1e999", b"\xe2\x80\xa8", b"\x1a", b"\x85", b"=1+1", b"null"),
)
SUFFIXES = (
    *(".tsv", ".csv", ".txt", ".jsonl", ".json", ".xlsx", ".ods", ".xls", ".parquet", ".arrow"),
    *(".tsv.gz", ".csv.xz", ".zst", ".bz2", ".pdf", "", ".tab", ".doc"),
)
Rows = list[tuple[str, str]]


def draw_rows(draw: random.Random) -> Rows:
    """Some pairs of texts in one or two alphabets."""
    first, second = draw.choice(ALPHABETS), draw.choice(ALPHABETS)

    def text(alphabet: str) -> str:
        return "".join(draw.choices(alphabet, k=draw.choice([0, 1, 3, 8, 30])))

    return [(text(first), text(second)) for _ in range(draw.choice([0, 1, 2, 5, 30, 200]))]


def as_tsv(rows: Rows, draw: random.Random) -> bytes:
    header = draw.choice(["", "source\ttarget\n", "\ufeff"])
    return (header + "".join(f"{a}\t{b}\n" for a, b in rows)).encode()


def as_csv(rows: Rows, draw: random.Random) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=draw.choice(",;|\t"), quoting=draw.choice([0, 1]))
    writer.writerows([*draw.choice([[], [("source", "target")]]), *rows])
    return text.getvalue().encode(draw.choice(["utf-8", "utf-8-sig", "utf-16"]), "replace")


def as_json_lines(rows: Rows, draw: random.Random) -> bytes:
    keys = draw.choice([("source", "target"), ("en", "de"), ("a", "a")])
    objects: list[Any] = [dict(zip(keys, row, strict=True)) for row in rows]
    if draw.random() < 0.3:
        objects = [{"translation": one} for one in objects]
    lines = [json.dumps(one, ensure_ascii=draw.random() < 0.5) for one in objects]
    text = "[" + ",".join(lines) + "]" if draw.random() < 0.2 else "\n".join(lines)
    return text.encode("utf-8", "replace")


def as_lines(rows: Rows, draw: random.Random) -> bytes:
    encoding = draw.choice(["utf-8", "cp1252", "utf-16", "mac_roman", "shift_jis", "utf-32"])
    ending = draw.choice(["\n", "\r\n", "\r"])
    return "".join(f"{a}{ending}" for a, _ in rows).encode(encoding, "replace")


def as_toml(rows: Rows, draw: random.Random) -> bytes:
    values = "".join(f"[{draw.choice(['model', 'train', 'x'])}{i}]\n" for i in range(len(rows) % 5))
    return f"[train]\nsteps = {len(rows)}\n{values}".encode()


def as_workbook(rows: Rows, draw: random.Random) -> bytes:
    import openpyxl

    book, stored = openpyxl.Workbook(), io.BytesIO()
    for row in rows[:30]:
        book.active.append([cell.replace("\0", "") for cell in row])
    book.save(stored)
    return stored.getvalue()


def as_parquet(rows: Rows, draw: random.Random) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = {"source": [a for a, _ in rows], "target": [b for _, b in rows]}
    stored = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), stored)
    return bytes(stored.getvalue())


FORMATS: dict[str, Callable[[Rows, random.Random], bytes]] = {
    ".tsv": as_tsv,
    ".csv": as_csv,
    ".jsonl": as_json_lines,
    ".txt": as_lines,
    **({".xlsx": as_workbook} if find_spec("openpyxl") and find_spec("python_calamine") else {}),
    **({".parquet": as_parquet} if find_spec("pyarrow") else {}),
}


def compress(data: bytes, draw: random.Random) -> bytes:
    """The data, compressed in one or several members."""
    kinds: list[Callable[[bytes], bytes]] = [gzip.compress, lzma.compress, bz2.compress]
    if find_spec("zstandard"):
        import zstandard

        kinds.append(zstandard.compress)
    kind, cut = draw.choice(kinds), draw.randrange(len(data) + 1)
    return kind(data) if draw.random() < 0.7 else kind(data[:cut]) + kind(data[cut:])


def fuzz(data: bytes, draw: random.Random) -> bytes:
    """The data with some mutations."""
    for _ in range(draw.choice([0, 0, 1, 1, 2, 8])):
        if draw.random() < 0.5:
            data = damage(data or b"x", draw)
        else:
            place = draw.randrange(len(data) + 1)
            data = data[:place] + draw.choice(SPECIAL) * draw.choice([1, 1, 5]) + data[place:]
    return data


class DataCases(Subject):
    """One fuzzed file each, read by one of the readers."""

    def prepare(self) -> None:
        """A tokenizer and a folder of ids to damage."""
        prepared = self.work / "prepared"
        prepared.mkdir()
        tokenizer = train_tokenizer("characters", ["".join(ALPHABETS)])
        tokenizer.save(prepared / "tokenizer.json")
        pairs = [("abc", "de"), ("f", "gh"), ("a b", "c d e")]
        tokenize_corpus(pairs, tokenizer, tokenizer, prepared / "ids", workers=1)

    def run(self, case: int, folder: Path) -> dict[str, int]:
        """Write a fuzzed file, read it, and see that nothing is left half-written."""
        draw = random.Random(f"{self.seed} data {case}")
        readers = {
            self._read_corpus: 5,
            self._predict: 4,
            self._clean: 2,
            self._tokenize: 1,
            self._damaged_ids: 1,
            self._settings: 1,
        }
        reader = draw.choices(list(readers), list(readers.values()))[0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader(folder, draw)
        except RegardError as error:
            message = str(error)
            assert "\n" not in message, f"several lines: {message!r:.300}"
            assert len(message) <= LONGEST_MESSAGE, f"{len(message):,} characters"
            outcome = "refused"
        else:
            outcome = "read"
        left = [name for name in snapshot(folder) if ".partial" in name or ".new" in name]
        assert not left, f"half-written: {left}"
        return {outcome: 1}

    def _write(self, folder: Path, draw: random.Random, name: str = "file") -> Path:
        suffix, write = draw.choice(sorted(FORMATS.items()))
        data = fuzz(write(draw_rows(draw), draw), draw)
        if draw.random() < 0.2:
            data = compress(data, draw)
            data = fuzz(data, draw) if draw.random() < 0.5 else data
        path = folder / f"{name}{suffix if draw.random() < 0.8 else draw.choice(SUFFIXES)}"
        path.write_bytes(data)
        return path

    def _corpus(self, folder: Path, draw: random.Random) -> Corpus:
        path = self._write(folder, draw)
        options: dict[str, Any] = {"bad_lines": draw.choice(["stop", "skip"])}
        if draw.random() < 0.2:
            return Corpus(path, self._write(folder, draw, "other"), **options)
        if draw.random() < 0.3:
            options |= {"source": draw.choice([1, "source", "x"]), "target": draw.choice([2, "de"])}
        if draw.random() < 0.2:
            options["header"] = draw.random() < 0.5
        return Corpus(path, **options)

    def _read_corpus(self, folder: Path, draw: random.Random) -> None:
        corpus = self._corpus(folder, draw)
        reader = corpus.read(folder / "bad" if corpus.bad_lines == "skip" else None)
        for pair in reader:
            assert pair.source.strip() == pair.source != ""
        corpus.fingerprint()

    def _predict(self, folder: Path, draw: random.Random) -> None:
        column = draw.choice([None, None, 1, "source"])
        inputs = FileInputs([str(self._write(folder, draw))], column)
        inputs.count()
        for window in inputs.windows():
            for line in window:
                assert "\n" not in line.text or inputs.table is not None

    def _clean(self, folder: Path, draw: random.Random) -> None:
        out = folder / f"out{draw.choice(['.tsv', '.csv', '.jsonl'])}"
        rules = CleaningRules(drop_conflicts=draw.random() < 0.5, keep_broken=draw.random() < 0.5)
        with redirect_stdout(io.StringIO()):
            clean(self._corpus(folder, draw), out, rules)
        assert len(list(Corpus(out))) >= 1  # complete: what was written can be read

    def _tokenize(self, folder: Path, draw: random.Random) -> None:
        tokenizer = Tokenizer.load(self.work / "prepared/tokenizer.json")
        ids = folder / "ids"
        try:
            tokenize_corpus(self._corpus(folder, draw), tokenizer, tokenizer, ids, workers=1)
        finally:
            if ids.exists():
                TokenizedPairs.open(ids, verify=True)

    def _damaged_ids(self, folder: Path, draw: random.Random) -> None:
        home = folder / "ids"
        home.mkdir()
        files = {path.name: path.read_bytes() for path in (self.work / "prepared/ids").iterdir()}
        name = draw.choice(sorted(files))
        changed = {**files, name: damage(files[name], draw)}
        for each, data in changed.items():
            (home / each).write_bytes(data)
        opened = TokenizedPairs.open(home, verify=True)
        if name != "ids.json":
            assert changed == files, f"damage of {name} was not found"
        assert [opened.source(i).tolist() for i in range(3)]

    def _settings(self, folder: Path, draw: random.Random) -> None:
        path = folder / "settings.toml"
        path.write_bytes(fuzz(as_toml(draw_rows(draw), draw), draw))
        read_toml(path)
