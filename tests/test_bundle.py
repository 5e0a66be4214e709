"""Bundles: what is saved comes back to the last bit, every damage is named, and nothing in the folder is ever run."""

import errno
import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.bundle import Bundle, BundleError, check_place, load, save
from regard.config import RecurrentSettings, TransformerSettings
from regard.models import build
from regard.ragged import Ragged
from regard.text import train_tokenizer

TRANSFORMER = TransformerSettings(width=12, heads=3, encoder_layers=2, decoder_layers=2, ffn_width=20, dropout=0.5)
MODELS = {
    **{
        name: TRANSFORMER.model_copy(update={"position": name})
        for name in ("rotary", "alibi", "distance", "sinusoidal")
    },
    "untied": TRANSFORMER.model_copy(update={"tie_embeddings": "none"}),
    "all tied": TRANSFORMER.model_copy(update={"tie_embeddings": "all"}),
    "gru": RecurrentSettings(width=8, attention="bahdanau", decoder_layers=2),
    "lstm": RecurrentSettings(width=8, cell="lstm", attention="none"),
}
CARD = {"data": {"pairs": 3}, "metrics": {"ser": 8.25}, "commands": ["regard train pairs.tsv"], "zeichen": "é→"}


def made(settings=TRANSFORMER, card=CARD) -> Bundle:
    source = train_tokenizer("characters", ["abandon", "zebra"])
    shared = settings.tie_embeddings == "all"
    target = source if shared else train_tokenizer("words", ["AH B AE N", "Z IY"])
    return Bundle(build(settings, len(source), len(target)).eval(), source, target, settings, card)


def logits(bundle: Bundle) -> torch.Tensor:
    source = Ragged.of([torch.tensor([3, 4, 2]), torch.tensor([5, 2])])
    prefix = Ragged.of([torch.tensor([1, 3, 4, 5]), torch.tensor([1])])
    return bundle.model(source, prefix).values


def rewrite(folder: Path, name: str, data: bytes) -> None:
    """Put other bytes in a file and make the manifest agree: what a forger would do."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def reconfigure(folder: Path, change) -> None:
    values = json.loads((folder / "config.json").read_text())
    change(values)
    rewrite(folder, "config.json", json.dumps(values).encode())


def retensor(folder: Path, change) -> None:
    tensors = load_file(folder / "weights.safetensors")
    change(tensors)
    save_file(tensors, folder / "other")
    rewrite(folder, "weights.safetensors", (folder / "other").read_bytes())


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "sounds"
    save(folder, made())
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "sounds"))


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_what_is_saved_comes_back_to_the_last_bit(settings, tmp_path):
    before = made(settings)
    save(tmp_path / "new/bundle", before)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    after = load(tmp_path / "new/bundle")
    assert torch.equal(torch.rand(3), expected), "loading drew random numbers"
    assert torch.equal(logits(after), logits(before))
    assert after.settings == settings
    assert after.card == CARD
    assert not after.model.training
    assert [after.source.fingerprint, after.target.fingerprint] == [
        before.source.fingerprint,
        before.target.fingerprint,
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["new", "bundle", "card.json", "config.json", "manifest.json", "weights.safetensors"]
        + (
            ["shared.tokenizer.json"]
            if settings.tie_embeddings == "all"
            else ["source.tokenizer.json", "target.tokenizer.json"]
        )
    )


def test_tied_tables_are_one_again(original, tmp_path):
    after = load(original)
    assert after.model.output.table is after.model.target.table
    save(tmp_path / "all", made(MODELS["all tied"]))
    after = load(tmp_path / "all")
    assert after.model.output.table is after.model.source.table
    assert after.source is after.target


def test_each_table_is_stored_once(original):
    names = load_file(original / "weights.safetensors")
    assert "target.table" in names
    assert "output.table" not in names


def test_other_floating_types_keep_their_bits(tmp_path):
    before = made()
    before.model.double()
    save(tmp_path / "b", before)
    assert torch.equal(logits(load(tmp_path / "b")), logits(before))
    assert logits(before).dtype == torch.float64


def test_a_card_is_readable_by_anyone(original):
    assert '"zeichen": "é→"' in (original / "card.json").read_text(encoding="utf-8")


FILES = ["weights.safetensors", "config.json", "card.json", "source.tokenizer.json", "target.tokenizer.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(
        BundleError, match=f"^cannot read '.*/{name}': No such file or directory; copy the bundle again$"
    ):
        load(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1])
    wanted = f"{name}' has {len(data) - 1} bytes instead of {len(data)}; copy the bundle again$"
    with pytest.raises(BundleError, match=wanted):
        load(folder)


@pytest.mark.parametrize("name", FILES)
def test_an_altered_file_is_named(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(BundleError, match=f"{name}' was altered: its sha256 differs; copy the bundle again$"):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": [1]}', "[" * 100_000])
def test_a_broken_manifest_is_named(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(
        BundleError, match=r"manifest.json' does not belong in this bundle: it .*; copy the bundle again$"
    ):
        load(folder)


def test_a_manifest_without_a_file_is_named(folder):
    (folder / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(BundleError, match=r"manifest.json' does not belong .*: it does not list 'config.json'; copy"):
        load(folder)


def test_what_is_no_bundle_is_said(tmp_path):
    with pytest.raises(BundleError, match=r"^there is no bundle '.*/none'; give the folder that `regard train` wrote$"):
        load(tmp_path / "none")
    with pytest.raises(BundleError, match=r"is no bundle: it has no manifest.json; give the folder"):
        load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match=r"file' is a file, not a bundle; give the folder"):
        load(tmp_path / "file")


def test_a_newer_format_says_what_to_do(folder):
    reconfigure(folder, lambda values: values.update(version=2, model={"kind": "mamba"}))
    with pytest.raises(
        BundleError, match=r"config.json' is of format 2, newer than the 1 known here; upgrade with pip"
    ):
        load(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda v: v.update(version="x"), "its version is 'x', not 1"),
        (lambda v: v.pop("vocabulary"), "it has no 'vocabulary'"),
        (lambda v: v["vocabulary"].update(source=-3), r"its vocabulary sizes are \(-3, 9\)"),
        (lambda v: v["model"].update(widht=3), r"unknown setting model.widht; did you mean 'width'\?"),
        (lambda v: v["model"].update(heads=5), "model.width = 12 cannot be split into model.heads = 5"),
        (lambda v: v["model"].update(width=24), r".*tensor '.*' has shape .*, not .*"),
        (lambda v: v["vocabulary"].update(target=99), "it has 9 ids where config.json says 99"),
    ],
)
def test_a_foreign_config_is_named(folder, change, why):
    reconfigure(folder, change)
    with pytest.raises(
        BundleError, match=f"(json|safetensors)' does not belong in this bundle: {why}; copy the bundle again$"
    ):
        load(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.pop("readout", t.pop("source.table")), "tensor 'source.table' is missing"),
        (lambda t: t.update(strange=torch.zeros(2)), "tensor 'strange' belongs to another model"),
        (lambda t: t.update({"source.table": torch.zeros(2, 3)}), r"tensor 'source.table' has shape \(2, 3\), not"),
        (lambda t: t.update({"source.table": t["source.table"].double()}), "its types are F32, F64"),
    ],
)
def test_foreign_weights_are_named(folder, change, why):
    retensor(folder, change)
    with pytest.raises(BundleError, match=f"weights.safetensors' does not belong in this bundle: {why}.*; copy"):
        load(folder)


def test_a_foreign_tokeniser_is_named(folder):
    rewrite(folder, "source.tokenizer.json", b'{"version": "1.0"}')
    with pytest.raises(BundleError, match=r"source.tokenizer.json' is no whole tokenizer.json"):
        load(folder)


class Trap:
    def __reduce__(self):
        return os._exit, (77,)


def test_a_pickle_in_place_of_the_weights_is_not_run(folder):
    rewrite(folder, "weights.safetensors", pickle.dumps(Trap()))
    with pytest.raises(BundleError, match=r"weights.safetensors' does not belong .* no whole safetensors file"):
        load(folder)


def test_loading_never_unpickles(folder, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, forbidden)
    assert load(folder).card == CARD


def test_a_new_bundle_replaces_the_old_one(folder):
    save(folder, made(card={"second": True}))
    assert load(folder).card == {"second": True}
    assert [path.name for path in folder.parent.iterdir()] == ["sounds"]


def test_a_link_stays_a_link(folder, tmp_path):
    (tmp_path / "latest").symlink_to(folder)
    save(tmp_path / "latest", made(card={}))
    assert (tmp_path / "latest").is_symlink()
    assert load(folder).card == {}


def test_nothing_of_other_people_is_removed(folder, tmp_path):
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"would remove 'notes.txt', which is no part of a bundle; move it away or"):
        save(folder, made())
    assert (folder / "notes.txt").read_text() == "mine"
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match=r"file': it is a file; choose another name"):
        check_place(tmp_path / "file")


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_bundle_and_no_rest(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match=r"^cannot write bundle '.*': No space left on device; mend that and save"):
        save(folder, made(card={}))
    assert load(folder).card == CARD
    assert [path.name for path in folder.parent.iterdir()] == ["sounds"]


def test_a_failure_between_the_renames_brings_the_old_one_back(folder, monkeypatch):
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: full() if "partial" in path.name else rename(path, to))
    with pytest.raises(BundleError, match="No space left"):
        save(folder, made(card={}))
    assert load(folder).card == CARD


def test_a_kill_between_the_renames_loses_nothing(folder):
    folder.rename(folder.parent / ".sounds.old")
    (folder.parent / ".sounds.partial").mkdir()
    assert load(folder).card == CARD
    save(folder, made(card={"after": 1}))
    assert load(folder).card == {"after": 1}
    assert [path.name for path in folder.parent.iterdir()] == ["sounds"]


def test_a_model_that_is_not_what_its_settings_say_is_refused(tmp_path):
    good = made()
    wrong = Bundle(good.model, good.target, good.target, good.settings, {})
    with pytest.raises(
        BundleError, match=r"not the one its settings and tokenisers describe: tensor 'source.table' has"
    ):
        save(tmp_path / "b", wrong)
    good.model.source.bfloat16()
    with pytest.raises(BundleError, match=r"one floating type, not torch.bfloat16, torch.float32"):
        save(tmp_path / "b", good)
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_is_no_json_is_refused(tmp_path):
    with pytest.raises(BundleError, match=r"^the card of this bundle is no JSON: .*; give strings, numbers and lists$"):
        save(tmp_path / "b", made(card={"path": Path("x")}))
    assert list(tmp_path.iterdir()) == []
