"""Files that once ended in a traceback or in a message of many lines (benchmarks/torture.py)."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pytest
import zstandard

from regard.commands.input_files import FileInputs
from regard.errors import RegardError, list_names, suggestion
from regard.text import Corpus
from regard.text.files import CorpusError, DamagedFile

PAIRS = "".join(f"word {i}\tdrow {i * i % 977}\n" for i in range(3_000)).encode()
COMPRESS = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("place", [14, 40, 100])
def test_damage_is_reported_before_the_first_line(tmp_path: Path, compression: str, place: int):
    data = bytearray(COMPRESS[compression](PAIRS))
    data[place : place + 30] = bytes(30)
    path = tmp_path / "pairs.tsv"
    path.write_bytes(data)
    for read in (Corpus, lambda name: list(FileInputs([str(name)], 1).windows())):
        with pytest.raises(CorpusError, match=r"(damaged|truncated) after line [\d,]+.*again$"):
            list(read(path))


@pytest.mark.parametrize("compression", COMPRESS)
def test_truncation_is_reported_before_the_first_line(tmp_path: Path, compression: str):
    path = tmp_path / "lines"
    path.write_bytes(COMPRESS[compression](PAIRS)[:30])
    with pytest.raises(DamagedFile, match=r"is (truncated|damaged) after line 0.*; copy it again$"):
        list(FileInputs([str(path)]).windows())


def test_lines_cannot_be_counted_in_a_damaged_file(tmp_path: Path):
    path = tmp_path / "lines"
    data = bytearray(gzip.compress(PAIRS * 40))
    data[-1_000:] = bytes(1_000)
    path.write_bytes(data)
    assert FileInputs([str(path)]).count() is None


def test_tables_without_text(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_bytes(b'\xef\xbb\xbf"\n')
    with pytest.raises(CorpusError, match=r"table.csv has no text in its first lines; give a file"):
        FileInputs([str(path)])


def test_long_names_are_shortened(tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"a" * 70_000: "x", "b" * 70_000: "y", "c": "z"}) + "\n")
    with pytest.raises(CorpusError, match=r"which of 'a{39}…', 'b{39}…', 'c' are source and"):
        Corpus(path)
    assert len(list_names([str(i) for i in range(10_000)])) < 300
    assert len(suggestion("x", [f"name {i}" * 50 for i in range(1_000)])) < 2_000


def test_cells_with_line_ends_stay_on_one_line(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_text('"a\nb",c,"d\r\ne"\n' * 4)
    with pytest.raises(RegardError) as refused:
        Corpus(path)
    assert "\n" not in str(refused.value)
    assert "(a b)" in str(refused.value)
