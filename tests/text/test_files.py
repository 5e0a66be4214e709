"""Files: the same lines from every compression, and clear errors."""

import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from regard.text import files
from regard.text.files import CorpusError, DamagedFile, open_file, open_text, read_lines

TEXT = "first\nsecond, größer\nthird\n".encode()
COMPRESS = {"plain": bytes, "gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}


def read(path: Path) -> list[tuple[int, bytes]]:
    return list(read_lines(open_file(path)))


def write_file(folder: Path, content: bytes, name: str = "file.txt") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("compression", COMPRESS)
def test_lines_of_every_compression(tmp_path: Path, compression: str):
    path = write_file(tmp_path, COMPRESS[compression](TEXT))  # detected by content, not by name
    assert read(path) == [(1, b"first"), (2, "second, größer".encode()), (3, b"third")]


@pytest.mark.parametrize("compression", ["gz", "xz", "zst"])
def test_archives_with_several_members(tmp_path: Path, compression: str):
    path = write_file(tmp_path, COMPRESS[compression](b"a\nb") + COMPRESS[compression](b"c\nd\n"))
    assert read(path) == [(1, b"a"), (2, b"bc"), (3, b"d")]


@pytest.mark.parametrize("compression", ["gz", "xz", "zst"])
def test_truncated_archive(tmp_path: Path, compression: str):
    whole = b"".join(b"%d %d\n" % (i, i * i * 7919 % 10007) for i in range(50_000))
    compressed = COMPRESS[compression](whole)
    path = write_file(tmp_path, compressed[: len(compressed) // 2])
    with pytest.raises(
        DamagedFile, match=r"^.*file.txt is truncated after line [\d,]+; copy it again$"
    ):
        read(path)


@pytest.mark.parametrize("compression", ["gz", "xz", "zst"])
def test_damaged_archive(tmp_path: Path, compression: str):
    checked = zstandard.ZstdCompressor(write_checksum=True).compress  # like the zstd command
    compress = checked if compression == "zst" else COMPRESS[compression]
    compressed = bytearray(compress(random.Random(0).randbytes(5000).hex().encode()))
    compressed[len(compressed) // 2 : len(compressed) // 2 + 40] = bytes(40)
    with pytest.raises(
        DamagedFile, match=r"^.*file.txt is damaged after line \d+ \(.*\); copy it again$"
    ):
        read(write_file(tmp_path, bytes(compressed)))


def test_compressible_zstandard_needs_little_memory(tmp_path: Path):
    """A kilobyte can hold many megabytes; they must not be decompressed at once."""
    frames = zstandard.compress((b"x" * 99 + b"\n") * 1_000_000, 19)
    assert len(frames) < 1 << 14
    file = open_file(write_file(tmp_path, frames))
    tracemalloc.start()
    try:
        with file.open() as stored, open_text(stored, file) as stream:
            blocks = iter(lambda: stream.read1(1 << 20), b"")
            assert sum(map(len, blocks)) == 100_000_000
        assert tracemalloc.get_traced_memory()[1] < 48e6
    finally:
        tracemalloc.stop()


def test_zstandard_frames_end_anywhere(tmp_path: Path):
    draw = random.Random(0)
    parts = [draw.randbytes(draw.randrange(3000)).hex().encode() + b"\n" for _ in range(40)]
    path = write_file(tmp_path, b"".join(map(zstandard.compress, parts)))
    assert [line + b"\n" for _, line in read_lines(open_file(path))] == parts


def test_only_line_feeds_end_lines(tmp_path: Path):
    text = "\ufeffa\u2028b\x0bc\r\n\r\nd\x85e\rf"
    assert read(write_file(tmp_path, text.encode())) == [
        (1, "a\u2028b\x0bc".encode()),
        (2, b""),
        (3, "d\x85e\rf".encode()),
    ]


def test_long_lines_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    path = write_file(tmp_path, b"x" * 10 + b"\n" + b"y" * 35 + b"\n" + b"z" * 11 + b"\nend\n")
    assert read(path) == [(1, b"x" * 10), (2, b"y" * 11), (3, b"z" * 11), (4, b"end")]


def test_standard_input_can_be_read_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT))))
    stream = open_file("-")
    assert stream.name == "standard input"
    together = list(zip(read_lines(stream), read_lines(stream), strict=True))
    assert [first for first, second in together if first == second] == list(read_lines(stream))
    assert len(together) == 3


def test_pipe_can_be_read_again(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(TEXT,))
    writer.start()
    stream = open_file(tmp_path / "pipe")
    writer.join()
    assert list(read_lines(stream)) == list(read_lines(stream)) != []


def test_unreadable_paths(tmp_path: Path):
    with pytest.raises(
        CorpusError, match=r"^cannot read '.*nowhere.tsv': No such file or directory$"
    ):
        open_file(tmp_path / "nowhere.tsv")
    with pytest.raises(CorpusError, match=r"^'.*' is a folder; name the files in it$"):
        open_file(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "cp1252", "mac_roman"])
def test_other_encodings_are_read_as_utf8(tmp_path: Path, encoding: str):
    file = open_file(write_file(tmp_path, TEXT.decode().encode(encoding)))
    file.encoding = encoding
    assert [line.decode() for _, line in read_lines(file)] == TEXT.decode().splitlines()


def test_undecodable_byte_stays_in_its_line(tmp_path: Path):
    file = open_file(write_file(tmp_path, b"a\x81\n\xe5\n"))  # cp1252 does not define 0x81
    file.encoding = "cp1252"
    assert list(read_lines(file)) == [(1, b"a\x81"), (2, "å".encode())]


def test_missing_package_is_named(tmp_path: Path):
    path = write_file(tmp_path, zstandard.compress(TEXT))
    script = f"""
import sys
sys.modules.update({{"compression.zstd": None, "zstandard": None}})
from regard.text.files import CorpusError, open_file, read_lines
try:
    list(read_lines(open_file({str(path)!r})))
except CorpusError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"reading {path} needs the package zstandard: pip install zstandard\n"
