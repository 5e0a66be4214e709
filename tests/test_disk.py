"""Atomic writes: the file is complete and flushed before it gets its name."""

import os
from pathlib import Path

import pytest

from regard import disk


def test_file_is_flushed_before_the_rename(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.json", []
    path.write_text("before")

    def record_fsync(handle: int) -> None:
        seen.append((path.read_text(), os.fstat(handle).st_size))

    monkeypatch.setattr(os, "fsync", record_fsync)
    disk.write_atomically(path, "äfter")
    assert seen == [("before", 6)]
    assert path.read_text(encoding="utf-8") == "äfter"
    assert os.listdir(tmp_path) == ["a.json"]


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("before")
    monkeypatch.setattr(
        disk, "fsync_path", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        disk.write_atomically(path, "after")
    assert path.read_text() == "before"
    assert [one.name for one in Path(tmp_path).iterdir()] == ["a.json"]
