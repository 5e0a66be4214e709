"""Archives: a packed model is the same model, and a hostile archive is refused."""

import json
import random
import stat
import zipfile
from pathlib import Path

import pytest

from regard import bundle
from regard.bundle import BundleError
from regard.bundle.archive import MAX_SMALL_BYTES
from regard.loading import load
from regard.pretrained import MODELS
from tests.commands.small import regard

SPELLING = MODELS / "spelling"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def archive_of(path: Path, files: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return path


def test_packed_model_is_used_by_every_command(tmp_path: Path, capsys):
    packed = tmp_path / "model.zip"
    out, _ = regard(capsys, "pack", "spelling", packed)
    size = packed.stat().st_size
    assert out == f"{packed}: {size:,} bytes; use it as a bundle: regard predict {packed} TEXT\n"
    assert set(zipfile.ZipFile(packed).namelist()) == {path.name for path in SPELLING.iterdir()}
    right, _ = regard(capsys, "predict", "spelling", "attention", "--scores")
    assert regard(capsys, "predict", packed, "attention", "--scores")[0] == right
    assert load(packed)("attention").text == "AH T EH N SH AH N"
    scored, _ = regard(capsys, "score", packed, "--pair", "cat", "K AE T")
    assert scored == regard(capsys, "score", "spelling", "--pair", "cat", "K AE T")[0]
    assert "weights.safetensors" in regard(capsys, "inspect", packed)[0]
    (tmp_path / "test.tsv").write_text("cat\tK AE T\nact\tAE K T\n")
    assert "2 sources" in regard(capsys, "evaluate", packed, tmp_path / "test.tsv")[0]


def test_explorer_opens_a_packed_model(tmp_path: Path):
    from regard.explore.model_store import ModelStore

    bundle.pack(SPELLING, tmp_path / "model.zip")
    assert len(list(ModelStore.open([tmp_path / "model.zip"]))) == 1


def test_archive_is_reproducible_and_unpacked_once(tmp_path: Path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    for path in (first, second):
        bundle.pack(SPELLING, path)
    assert first.read_bytes() == second.read_bytes()
    home = bundle.locate(first)
    assert bundle.locate(second) == home
    assert {path.name for path in home.iterdir()} == {path.name for path in SPELLING.iterdir()}
    assert home.is_relative_to(tmp_path / "cache")


def test_names_are_checked(tmp_path: Path, capsys):
    (tmp_path / "model.zip").write_text("mine")
    _, printed = regard(capsys, "pack", "spelling", tmp_path / "model.zip", code=2)
    exists = f"'{tmp_path / 'model.zip'}' exists; remove it, or choose another name"
    assert printed == f"regard: {exists}\n"
    _, printed = regard(capsys, "pack", "spelling", tmp_path / "model.tar", code=2)
    assert printed == f"regard: the archive '{tmp_path / 'model.tar'}' must be named .zip\n"


MANIFEST = json.dumps({"files": {}}).encode()
HOSTILE = {
    "parent": ({"../evil.json": b"{}"}, "'../evil.json' is not a file of a bundle"),
    "absolute": ({"/etc/passwd": b"x"}, "'/etc/passwd' is not a file of a bundle"),
    "folder": ({"config.json/": b""}, "'config.json/' is not a file of a bundle"),
    "code": ({"manifest.json": MANIFEST, "model.py": b"1"}, "'model.py' is not a file of a bundle"),
    "pickle": ({"weights.bin": b"x"}, "'weights.bin' is not a file of a bundle"),
    "bomb": (
        {"manifest.json": MANIFEST, "card.json": bytes(1 << 22)},
        "'card.json' is compressed too much",
    ),
    "large": (
        {"manifest.json": MANIFEST, "card.json": bytes(MAX_SMALL_BYTES + 1)},
        f"'card.json' is too large ({MAX_SMALL_BYTES + 1:,} bytes)",
    ),
    "empty": ({}, ""),
    "no manifest": ({"card.json": b"{}"}, "it has no manifest.json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archive_is_refused(tmp_path: Path, name: str):
    files, reason = HOSTILE[name]
    path = archive_of(tmp_path / "model.zip", files)
    with pytest.raises(BundleError) as error:
        bundle.load(path)
    if reason:
        expected = f"'{path}' is not a packed model: {reason}; make one with `regard pack`"
        assert str(error.value) == expected
    left = [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]
    assert left == []
    assert not (tmp_path / "evil.json").exists()


def test_links_and_duplicates_are_refused(tmp_path: Path):
    files = {"manifest.json": b"/etc/passwd"}
    link = archive_of(tmp_path / "link.zip", files, stat.S_IFLNK | 0o777)
    with pytest.raises(BundleError, match=r"'manifest.json' is not a regular file"):
        bundle.load(link)
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as packed:
        packed.writestr("card.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            packed.writestr("card.json", "{}")
    with pytest.raises(BundleError, match=r"'card.json' occurs twice"):
        bundle.load(tmp_path / "twice.zip")


def test_altered_archive_is_refused(tmp_path: Path):
    files = {path.name: path.read_bytes() for path in SPELLING.iterdir()}
    files["card.json"] = files["card.json"].replace(b"phones", b"shapes")
    path = archive_of(tmp_path / "model.zip", files)
    with pytest.raises(BundleError, match=r"card.json' was altered: its sha256 differs"):
        bundle.load(path)


def test_model_card_says_what_the_model_is():
    text = (SPELLING / "README.md").read_text()
    for part in (
        "It is a Transformer with 1,424,000 parameters",
        "It was trained on 124,144 pairs of source and target from `train.tsv`.",
        "1,225 other sources were held out",
        "| phone error rate | 5.5 |",
        "regard.load(",
    ):
        assert part in text


def test_saved_bundle_has_a_model_card(tmp_path: Path):
    loaded = bundle.load(SPELLING)
    bundle.save(tmp_path / "copy", loaded)
    assert (tmp_path / "copy/README.md").read_text() == (SPELLING / "README.md").read_text()
    bundle.save(tmp_path / "copy", loaded)  # over its own files


@pytest.mark.parametrize("place", [60, 90, 150])
def test_damaged_bytes_are_one_line(tmp_path: Path, place: int):
    """Also where the decompressor fails before a checksum is compared."""
    packed = archive_of(tmp_path / "model.zip", {"manifest.json": bytes(range(256)) * 40})
    data = bytearray(packed.read_bytes())
    data[place : place + 40] = b"\xff" * 40
    packed.write_bytes(data)
    with pytest.raises(BundleError, match=r"model.zip' is damaged \(.*\); copy it again$"):
        load(packed)
    assert list((tmp_path / "cache/regard/models").iterdir()) == []


def test_a_damaged_length_of_a_name_gives_a_short_message(tmp_path: Path):
    """The name in a local header then reads on into the contents of the file."""
    packed = archive_of(
        tmp_path / "model.zip", {"manifest.json": random.Random(1).randbytes(4_000)}
    )
    content = bytearray(packed.read_bytes())
    content[26:28] = (3_000).to_bytes(2, "little")  # the length of the name
    packed.write_bytes(content)
    with pytest.raises(BundleError) as caught:
        load(packed)
    assert "is damaged (File name in directory" in str(caught.value)
    assert len(str(caught.value)) - len(str(packed)) < 160
