"""Bundles: bit-exact round trips, errors that name the damaged file, and no code execution."""

import errno
import hashlib
import json
import os
import pickle
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.bundle import Bundle, BundleError, check_destination, load, read, save
from regard.bundle.manifest import unreadable_file
from regard.config import RecurrentSettings, TransformerSettings
from regard.models import build
from regard.ragged import Ragged
from regard.text import Template, train_tokenizer

TRANSFORMER = TransformerSettings(
    width=12, heads=3, encoder_layers=2, decoder_layers=2, ffn_width=20, dropout=0.5
)
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
CARD = {
    "data": {"pairs": 3},
    "metrics": {"phone_error_rate": 8.25},
    "commands": ["regard train pairs.tsv"],
    "zeichen": "é→",
}


def make_bundle(settings=TRANSFORMER, card=CARD) -> Bundle:
    source = train_tokenizer("characters", ["abandon", "zebra"])
    shared = settings.tie_embeddings == "all"
    target = source if shared else train_tokenizer("words", ["AH B AE N", "Z IY"])
    return Bundle(build(settings, len(source), len(target)).eval(), source, target, settings, card)


def logits(bundle: Bundle) -> torch.Tensor:
    source = Ragged.of([torch.tensor([3, 4, 2]), torch.tensor([5, 2])])
    prefix = Ragged.of([torch.tensor([1, 3, 4, 5]), torch.tensor([1])])
    return bundle.model(source, prefix).values


def rewrite(folder: Path, name: str, data: bytes) -> None:
    """Replace a file and update the manifest, as a forger would."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change_config(folder: Path, change) -> None:
    values = json.loads((folder / "config.json").read_text())
    change(values)
    rewrite(folder, "config.json", json.dumps(values).encode())


def change_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / "weights.safetensors")
    change(tensors)
    save_file(tensors, folder / "other")
    rewrite(folder, "weights.safetensors", (folder / "other").read_bytes())


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "sounds"
    save(folder, make_bundle())
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "sounds"))


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_round_trip_is_bit_exact(settings, tmp_path):
    before = make_bundle(settings)
    save(tmp_path / "new/bundle", before)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    after = load(tmp_path / "new/bundle")
    assert torch.equal(torch.rand(3), expected), "loading changed the random state"
    assert torch.equal(logits(after), logits(before))
    assert after.settings == settings
    assert after.card == CARD
    assert not after.model.training
    assert [after.source.fingerprint, after.target.fingerprint] == [
        before.source.fingerprint,
        before.target.fingerprint,
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        [
            "new",
            "README.md",
            "bundle",
            "card.json",
            "config.json",
            "manifest.json",
            "weights.safetensors",
        ]
        + (
            ["shared.tokenizer.json"]
            if settings.tie_embeddings == "all"
            else ["source.tokenizer.json", "target.tokenizer.json"]
        )
    )


def test_tied_tables_are_tied_after_loading(original, tmp_path):
    after = load(original)
    assert after.model.output.table is after.model.target.table
    save(tmp_path / "all", make_bundle(MODELS["all tied"]))
    after = load(tmp_path / "all")
    assert after.model.output.table is after.model.source.table
    assert after.source is after.target


def test_tied_tables_are_stored_once(original):
    names = load_file(original / "weights.safetensors")
    assert "target.table" in names
    assert "output.table" not in names


def test_float64_round_trip_is_exact(tmp_path):
    before = make_bundle()
    before.model.double()
    save(tmp_path / "b", before)
    assert torch.equal(logits(load(tmp_path / "b")), logits(before))
    assert logits(before).dtype == torch.float64


def test_card_is_readable_utf8(original):
    assert '"zeichen": "é→"' in (original / "card.json").read_text(encoding="utf-8")


FILES = [
    "weights.safetensors",
    "config.json",
    "card.json",
    "source.tokenizer.json",
    "target.tokenizer.json",
]


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(
        BundleError,
        match=f"^cannot read '.*/{name}': No such file or directory; copy the bundle again$",
    ):
        load(folder)


@pytest.mark.parametrize("name", FILES)
def test_truncated_file_is_named(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1])
    wanted = f"{name}' has {len(data) - 1} bytes instead of {len(data)}; copy the bundle again$"
    with pytest.raises(BundleError, match=wanted):
        load(folder)


@pytest.mark.parametrize("name", FILES)
def test_altered_file_is_named(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(
        BundleError, match=f"{name}' was altered: its sha256 differs; copy the bundle again$"
    ):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": [1]}', "[" * 100_000])
def test_broken_manifest_is_named(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(
        BundleError,
        match=r"manifest.json' is invalid in this bundle: it .*; copy the bundle again$",
    ):
        load(folder)


def test_incomplete_manifest_is_named(folder):
    (folder / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(
        BundleError, match=r"manifest.json' is invalid .*: it does not list 'config.json'; copy"
    ):
        load(folder)


def test_paths_that_are_not_bundles(tmp_path):
    with pytest.raises(
        BundleError,
        match=r"^no bundle at '.*/none'; pass a folder written by `regard train`$",
    ):
        load(tmp_path / "none")
    with pytest.raises(
        BundleError, match=r"is not a bundle: it has no manifest.json; pass a folder"
    ):
        load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match=r"file' is a file, not a bundle; pass a folder"):
        load(tmp_path / "file")


def test_newer_format_asks_to_upgrade(folder):
    change_config(folder, lambda values: values.update(version=3, model={"kind": "mamba"}))
    with pytest.raises(
        BundleError,
        match=r"config.json' has format version 3, newer than the supported 2; upgrade with pip",
    ):
        load(folder)


def test_template_survives_saving_and_changes(tmp_path):
    one = make_bundle()
    template = Template(end=3, start=(3, 4), source_suffix=(5,), banned=(1,), languages={"a": 4})
    made = Bundle(one.model, one.source, one.target, one.settings, {}, template=template)
    save(tmp_path / "made", made)
    loaded = load(tmp_path / "made")
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config["version"] == 2
    assert config["template"]["start"] == [3, 4]
    assert loaded.template == template
    assert loaded.with_card({}).template == template
    assert loaded.with_model(one.model).template == template


def test_format_1_loads_with_the_default_template(folder):
    expected = logits(load(folder))

    def older(values):
        values.pop("template")
        values["version"] = 1

    change_config(folder, older)
    loaded = load(folder)
    assert loaded.template == Template()
    assert torch.equal(logits(loaded), expected)


def test_included_models_have_format_1():
    for name in ("spelling", "spelling-recurrent"):
        folder = files("regard") / "data" / "models" / name
        assert json.loads((folder / "config.json").read_text())["version"] == 1
        assert read(str(folder)).template == Template()


def test_languages_change_only_the_template(tmp_path):
    one = make_bundle()
    template = Template(start=(1, 4), languages={"a": 4, "b": 5})
    save(tmp_path / "made", Bundle(one.model, one.source, one.target, one.settings, {},
                                   template=template))  # fmt: skip
    loaded = read(tmp_path / "made")
    assert loaded.with_languages(None, "b").template.start == (1, 5)
    assert loaded.template.start == (1, 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda v: v.update(version="x"), "its version is 'x', not 1 or 2"),
        (lambda v: v.pop("template"), "it has no 'template'"),
        (lambda v: v["template"].update(end=[2]), r"end of a template must be a token id; got .2."),
        (lambda v: v["template"].update(end=9), "end of the template has id 9, outside .*"),
        (lambda v: v.pop("vocabulary"), "it has no 'vocabulary'"),
        (lambda v: v["vocabulary"].update(source=-3), r"its vocabulary sizes are \(-3, 9\)"),
        (
            lambda v: v["model"].update(widht=3),
            r"unknown setting model.widht; did you mean 'width'\?",
        ),
        (
            lambda v: v["model"].update(heads=5),
            "model.width = 12 cannot be split into model.heads = 5; set model.dim, .*",
        ),
        (lambda v: v["model"].update(width=24), r".*tensor '.*' has shape .*, not .*"),
        (lambda v: v["vocabulary"].update(target=99), "it has 9 ids, but config.json says 99"),
    ],
)
def test_invalid_config_is_named(folder, change, reason):
    change_config(folder, change)
    with pytest.raises(
        BundleError,
        match=f"(json|safetensors)' is invalid in this bundle: {reason}; copy the bundle again$",
    ):
        load(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("readout", t.pop("source.table")), "tensor 'source.table' is missing"),
        (lambda t: t.update(strange=torch.zeros(2)), "tensor 'strange' belongs to another model"),
        (
            lambda t: t.update({"source.table": torch.zeros(2, 3)}),
            r"tensor 'source.table' has shape \(2, 3\), not",
        ),
        (
            lambda t: t.update({"source.table": t["source.table"].double()}),
            "its types are F32, F64",
        ),
    ],
)
def test_invalid_weights_are_named(folder, change, reason):
    change_tensors(folder, change)
    with pytest.raises(
        BundleError, match=f"weights.safetensors' is invalid in this bundle: {reason}.*; copy"
    ):
        load(folder)


def test_invalid_tokenizer_is_named(folder):
    rewrite(folder, "source.tokenizer.json", b'{"version": "1.0"}')
    with pytest.raises(BundleError, match=r"source.tokenizer.json' is not a valid tokenizer.json"):
        load(folder)


class ExitOnUnpickling:
    def __reduce__(self):
        return os._exit, (77,)


def test_pickle_instead_of_weights_is_not_run(folder):
    rewrite(folder, "weights.safetensors", pickle.dumps(ExitOnUnpickling()))
    with pytest.raises(
        BundleError, match=r"weights.safetensors' is invalid .* not a valid safetensors file"
    ):
        load(folder)


def test_loading_never_unpickles(folder, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("unpickled")

    for module, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (torch, "load"),
    ):
        monkeypatch.setattr(module, name, forbidden)
    assert load(folder).card == CARD


def test_save_replaces_the_old_bundle(folder):
    save(folder, make_bundle(card={"second": True}))
    assert load(folder).card == {"second": True}
    assert [path.name for path in folder.parent.iterdir()] == ["sounds"]


def test_save_follows_symbolic_links(folder, tmp_path):
    (tmp_path / "latest").symlink_to(folder)
    save(tmp_path / "latest", make_bundle(card={}))
    assert (tmp_path / "latest").is_symlink()
    assert load(folder).card == {}


def test_save_never_removes_other_files(folder, tmp_path):
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(
        BundleError, match=r"would remove 'notes.txt', which is not part of a bundle; move it or"
    ):
        save(folder, make_bundle())
    assert (folder / "notes.txt").read_text() == "mine"
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match=r"file': it is a file; choose another name"):
        check_destination(tmp_path / "file")


def raise_disk_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_keeps_the_old_bundle(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(
        BundleError,
        match=r"^cannot write bundle '.*': No space left on device; fix the cause and try again",
    ):
        save(folder, make_bundle(card={}))
    assert load(folder).card == CARD
    assert [path.name for path in folder.parent.iterdir()] == ["sounds"]


def test_failed_rename_restores_the_old_bundle(folder, monkeypatch):
    rename = Path.rename
    monkeypatch.setattr(
        Path,
        "rename",
        lambda path, to: raise_disk_full() if "partial" in path.name else rename(path, to),
    )
    with pytest.raises(BundleError, match="No space left"):
        save(folder, make_bundle(card={}))
    assert load(folder).card == CARD


def test_kill_between_renames_loses_nothing(folder):
    folder.rename(folder.parent / ".sounds.old")
    (folder.parent / ".sounds.partial").mkdir()
    assert load(folder).card == CARD
    save(folder, make_bundle(card={"after": 1}))
    assert load(folder).card == {"after": 1}
    assert [path.name for path in folder.parent.iterdir()] == ["sounds"]


def test_model_must_match_its_settings(tmp_path):
    good = make_bundle()
    wrong = Bundle(good.model, good.target, good.target, good.settings, {})
    with pytest.raises(
        BundleError, match=r"does not match its settings and tokenizers: tensor 'source.table' has"
    ):
        save(tmp_path / "b", wrong)
    good.model.source.bfloat16()
    with pytest.raises(
        BundleError, match=r"one floating-point type, not torch.bfloat16, torch.float32"
    ):
        save(tmp_path / "b", good)
    assert list(tmp_path.iterdir()) == []


def test_card_must_be_json(tmp_path):
    with pytest.raises(
        BundleError,
        match=r"^the card of this bundle is not JSON: .*; use strings, numbers and lists$",
    ):
        save(tmp_path / "b", make_bundle(card={"path": Path("x")}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "make it readable for this user"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "copy the bundle again"),
    ],
)
def test_unreadable_files_have_their_own_fix(tmp_path: Path, error: OSError, fix: str):
    message = str(unreadable_file(tmp_path / "card.json", error))
    assert message == f"cannot read '{tmp_path / 'card.json'}': {error.strerror}; {fix}"
