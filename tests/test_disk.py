"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from regard import disk


def test_a_file_has_its_name_when_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.json", []
    path.write_text("before")

    def synced(handle: int) -> None:
        seen.append((path.read_text(), os.fstat(handle).st_size))

    monkeypatch.setattr(os, "fsync", synced)
    disk.write_whole(path, "äfter")
    assert seen == [("before", 6)]
    assert path.read_text(encoding="utf-8") == "äfter"
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_could_not_be_written_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("before")
    monkeypatch.setattr(disk, "to_disk", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        disk.write_whole(path, "after")
    assert path.read_text() == "before"
    assert [one.name for one in Path(tmp_path).iterdir()] == ["a.json"]
