"""Checksums: every changed byte is found, in blocks and in JSON values."""

import json
import zlib
from pathlib import Path

import pytest

from regard import checksums
from regard.checksums import BlockChecksums, find_damage, is_intact, seal, unseal


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksums, "BLOCK_BYTES", 8)


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 20])
@pytest.mark.parametrize("piece", [1, 5, 8, 100])
def test_blocks_have_the_crc_of_zlib(tmp_path: Path, size: int, piece: int):
    data = bytes(range(size))
    sums = BlockChecksums()
    for start in range(0, size, piece):
        sums.update(data[start : start + piece])
    (tmp_path / "file").write_bytes(data)
    expected = [zlib.crc32(data[start : start + 8]) for start in range(0, size, 8)]
    assert sums.values() == expected
    assert find_damage(tmp_path / "file", expected) is None


def test_every_changed_byte_is_found(tmp_path: Path):
    data, path = bytes(range(20)), tmp_path / "file"
    path.write_bytes(data)
    expected = [zlib.crc32(data[start : start + 8]) for start in (0, 8, 16)]
    for place in range(20):
        for changed in (data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :], data[:place]):
            path.write_bytes(changed)
            found = find_damage(path, expected)
            assert found is not None
            assert found <= place
    path.write_bytes(data + b"\0")
    assert find_damage(path, expected) == 16
    path.write_bytes(data[:16])
    assert find_damage(path, expected[:2]) is None
    assert find_damage(path, expected) == 16


def test_a_changed_character_of_json_is_found():
    values = {"steps": 10, "rate": 0.1, "text": "ä", "nothing": None, "list": [1, {"a": 2}]}
    text = json.dumps(seal(values), indent=1, ensure_ascii=False)
    assert is_intact(json.loads(text))
    assert unseal(json.loads(text)) == values
    found = 0
    for place, character in enumerate(text):
        for other in "70x":
            try:
                changed = json.loads(text[:place] + other + text[place + 1 :])
            except ValueError:
                continue
            if changed != json.loads(text):
                assert not is_intact(changed) or "crc32" not in changed, (place, character, other)
                found += 1
    assert found > 50


def test_values_of_older_versions_are_accepted():
    assert is_intact({"steps": 10})
    assert not is_intact({"steps": 11, "crc32": seal({"steps": 10})["crc32"]})
