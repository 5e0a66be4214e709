"""Files: the same lines however they are packed, and clear words when they cannot be had."""

import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zstandard

from regard.text import files
from regard.text.files import CorpusError, DamagedFile, file, lines

TEXT = "first\nsecond, größer\nthird\n".encode()
PACK = {"plain": bytes, "gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}


def read(path: Path) -> list[tuple[int, bytes]]:
    return list(lines(file(path)))


def written(folder: Path, content: bytes, name: str = "file.txt") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("packing", PACK)
def test_lines_whatever_the_packing(tmp_path: Path, packing: str):
    path = written(tmp_path, PACK[packing](TEXT))  # the name says nothing: the content does
    assert read(path) == [(1, b"first"), (2, "second, größer".encode()), (3, b"third")]


@pytest.mark.parametrize("packing", ["gz", "xz", "zst"])
def test_archives_of_several_members(tmp_path: Path, packing: str):
    path = written(tmp_path, PACK[packing](b"a\nb") + PACK[packing](b"c\nd\n"))
    assert read(path) == [(1, b"a"), (2, b"bc"), (3, b"d")]


@pytest.mark.parametrize("packing", ["gz", "xz", "zst"])
def test_an_archive_cut_short(tmp_path: Path, packing: str):
    whole = b"".join(b"%d %d\n" % (i, i * i * 7919 % 10007) for i in range(50_000))
    packed = PACK[packing](whole)
    path = written(tmp_path, packed[: len(packed) // 2])
    with pytest.raises(DamagedFile, match=r"^.*file.txt is cut short after line [\d,]+; copy it anew$"):
        read(path)


@pytest.mark.parametrize("packing", ["gz", "xz", "zst"])
def test_a_damaged_archive(tmp_path: Path, packing: str):
    checked = zstandard.ZstdCompressor(write_checksum=True).compress  # as the command zstd does
    pack = checked if packing == "zst" else PACK[packing]
    packed = bytearray(pack(random.Random(0).randbytes(5000).hex().encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    with pytest.raises(DamagedFile, match=r"^.*file.txt is damaged after line \d+ \(.*\); copy it anew$"):
        read(written(tmp_path, bytes(packed)))


def test_only_a_line_feed_ends_a_line(tmp_path: Path):
    text = "\ufeffa\u2028b\x0bc\r\n\r\nd\x85e\rf"
    assert read(written(tmp_path, text.encode())) == [
        (1, "a\u2028b\x0bc".encode()),
        (2, b""),
        (3, "d\x85e\rf".encode()),
    ]


def test_a_line_without_end_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    path = written(tmp_path, b"x" * 10 + b"\n" + b"y" * 35 + b"\n" + b"z" * 11 + b"\nend\n")
    assert read(path) == [(1, b"x" * 10), (2, b"y" * 11), (3, b"z" * 11), (4, b"end")]


def test_standard_input_can_be_read_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT))))
    stream = file("-")
    assert stream.name == "standard input"
    together = list(zip(lines(stream), lines(stream), strict=True))
    assert [first for first, second in together if first == second] == list(lines(stream))
    assert len(together) == 3


def test_a_pipe_can_be_read_again(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(TEXT,))
    writer.start()
    stream = file(tmp_path / "pipe")
    writer.join()
    assert list(lines(stream)) == list(lines(stream)) != []


def test_what_is_no_file(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"^cannot read '.*nowhere.tsv': No such file or directory$"):
        file(tmp_path / "nowhere.tsv")
    with pytest.raises(CorpusError, match=r"^'.*' is a folder; name the files in it$"):
        file(tmp_path)
    with pytest.raises(CorpusError, match=r"^.*file.txt is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8$"):
        read(written(tmp_path, "a\tb\n".encode("utf-16")))


def test_a_missing_package_is_named(tmp_path: Path):
    path = written(tmp_path, zstandard.compress(TEXT))
    script = f"""
import sys
sys.modules.update({{"compression.zstd": None, "zstandard": None}})
from regard.text.files import CorpusError, file, lines
try:
    list(lines(file({str(path)!r})))
except CorpusError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"reading {path} needs the package zstandard: pip install zstandard\n"
