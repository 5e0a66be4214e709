"""Damaged, unsupported and malicious Hugging Face folders: one-line errors, nothing written."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from benchmarks.interchange_models import write_folder
from regard.errors import RegardError
from regard.hub.checkpoint_folder import CheckpointFolder
from tests.commands.small import regard as command
from tests.hub.hf_folders import hf_folder


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def replace_by_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def link_outside(folder: Path) -> None:
    outside = folder.parent / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)


def link_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/etc/hostname")


def index_outside(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "evil.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"lm_head.weight": "../evil.safetensors"}})
    )


def shards(folder: Path) -> dict[str, str]:
    """Split the weights in two files; returns the index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    index: dict[str, str] = {}
    for number, half in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in half}, folder / file)
        index |= dict.fromkeys(half, file)
    write_index(folder, index)
    return index


def write_index(folder: Path, index: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )


def lose_a_shard(folder: Path) -> None:
    shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def name_a_missing_tensor(folder: Path) -> None:
    write_index(folder, {**shards(folder), "another": "model-00001-of-00002.safetensors"})


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def fifo(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def endless_json(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def large_config(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "marian", "x": "y" * (1 << 20)}))


def integers(tensors: dict[str, torch.Tensor]) -> None:
    tensors["final_logits_bias"] = torch.zeros(1, 37, dtype=torch.int64)


KEY = "model.encoder.layers.0.fc1.weight"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-config": (lambda f: (f / "config.json").unlink(), "it has no config.json"),
    "pickle": (replace_by_pickle, "only 'pytorch_model.bin', a format that can run code .* conver"),
    "no-weights": (lambda f: (f / "model.safetensors").unlink(), "it has no model.safetensors; do"),
    "link": (link_outside, r"'model.safetensors' is a link to a file outside of it; .*cp -rL"),
    "tokenizer-link": (link_tokenizer, "'tokenizer.json' is a link to a file outside"),
    "traversal": (index_outside, "'../evil.safetensors' is not the name of a file in the folder"),
    "missing-shard": (lose_a_shard, "'model-00002-of-00002.safetensors', .* is missing"),
    "wrong-index": (name_a_missing_tensor, "'model-00001-of-00002.safetensors' has no tensor 'an"),
    "huge-header": (huge_header, "'model.safetensors' is not a valid safetensors file"),
    "cut-off": (cut_off, "'model.safetensors' is not a valid safetensors file"),
    "fifo": (fifo, "'config.json' is not a regular file"),
    "endless-json": (endless_json, "'config.json' is not valid JSON"),
    "no-json": (lambda f: (f / "config.json").write_text("{"), "'config.json' is not valid JSON"),
    "json-list": (lambda f: (f / "config.json").write_text("[]"), "is not a JSON object"),
    "large-config": (large_config, "'config.json' has more than 1,048,576 bytes"),
    "no-tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "it has no tokenizer files of its"),
    "bad-tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "its tokenizer cannot be"),
    "missing-tensor": (
        lambda f: change_weights(f, lambda t: t.pop(KEY)),
        f"tensor '{KEY}' is missing",
    ),
    "wrong-shape": (
        lambda f: change_weights(f, lambda t: t.update({KEY: torch.zeros(3, 3)})),
        rf"tensor '{KEY}' has shape \(3, 3\), not \(20, 30\)",
    ),
    "adapter": (
        lambda f: change_weights(f, lambda t: t.update({"lora.A": torch.zeros(3)})),
        "it has tensor 'lora.A', unknown in this family; merge adapters",
    ),
    "integers": (lambda f: change_weights(f, integers), "has type I64; save the model in one of"),
    "not-finite": (
        lambda f: change_weights(f, lambda t: t[KEY].fill_(float("nan"))),
        "its weights are not finite",
    ),
    "huge-width": (
        lambda f: change_config(f, d_model=1 << 40),
        "d_model in config.json must be an",
    ),
    "huge-positions": (
        lambda f: change_config(f, max_position_embeddings=1 << 30),
        "max_position_embeddings in config.json must be an integer from 1 to 131,072",
    ),
    "huge-depth": (lambda f: change_config(f, encoder_layers=10**9), "encoder_layers in config"),
    "text-for-number": (lambda f: change_config(f, d_model="30"), "d_model .* got '30'"),
    "bool-for-number": (lambda f: change_config(f, encoder_layers=True), "encoder_layers .* True"),
    "token-outside": (lambda f: change_config(f, pad_token_id=99), "pad_token_id in config.json"),
    "activation": (
        lambda f: change_config(f, activation_function="mish"),
        "activation_function in config.json must be one of 'relu', .* got 'mish'",
    ),
    "heads": (
        lambda f: change_config(f, decoder_attention_heads=5),
        "encoder and decoder have different numbers of heads",
    ),
    "decoder-only": (
        lambda f: change_config(f, model_type="gpt2"),
        "'gpt2' is a decoder-only model; choose an encoder–decoder: marian, bart",
    ),
    "encoder-only": (lambda f: change_config(f, model_type="bert"), "'bert' is an encoder-only m"),
    "speech": (lambda f: change_config(f, model_type="whisper"), "'whisper' is a speech model"),
    "no-type": (lambda f: change_config(f, model_type=None), "model_type in config.json must be"),
    "typo": (
        lambda f: change_config(f, model_type="marina"),
        "unknown model_type 'marina'; did you mean 'marian'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_bad_folders_are_refused_in_one_line(damage: str, tmp_path: Path, capsys):
    folder, _ = hf_folder(tmp_path / "model")
    change, message = DAMAGES[damage]
    change(folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RegardError, match=message) as caught:
        regard.import_model(folder, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_refuses_with_exit_code_2(tmp_path: Path, capsys):
    folder, _ = hf_folder(tmp_path / "model")
    replace_by_pickle(folder)
    _, error = command(capsys, "import", str(folder), str(tmp_path / "out"), code=2)
    assert error.splitlines()[-1].startswith(f"regard: cannot import '{folder}': it has no model.")
    assert not (tmp_path / "out").exists()


def test_names_on_the_hub_need_a_request(tmp_path: Path):
    with pytest.raises(RegardError, match="add --download for a name on the Hugging Face Hub"):
        regard.import_model("someone/something", tmp_path / "out")
    with pytest.raises(RegardError, match="is not a name on the Hugging Face Hub"):
        regard.import_model("../../x/y", tmp_path / "out", download=True)


class FakeHub:
    """Stands for huggingface_hub: copies a folder instead of downloading it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requests = folder, []

    def snapshot_download(self, name: str, *, local_dir: str, allow_patterns: list[str]) -> None:
        self.requests.append(name)
        if name != "someone/model":
            raise OSError(f"404: {name}\nmore")
        for pattern in allow_patterns:
            for path in self.folder.glob(pattern):
                shutil.copy(path, local_dir)


def test_downloads_take_neither_code_nor_pickles(tmp_path: Path, monkeypatch):
    folder, _ = hf_folder(tmp_path / "model")
    (folder / "modeling.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    hub = FakeHub(folder)
    monkeypatch.setattr("regard.hub.hub_download.import_module", lambda name: hub)
    monkeypatch.chdir(tmp_path)
    made = regard.import_model("someone/model", tmp_path / "out", download=True)
    assert json.loads((made / "card.json").read_text())["import"]["model"] == "someone/model"
    with pytest.raises(RegardError, match=r"cannot download 'someone/else': 404: someone/else; ch"):
        regard.import_model("someone/else", tmp_path / "other", download=True)
    assert hub.requests == ["someone/model", "someone/else"]
    monkeypatch.setattr("regard.hub.hub_download.find_spec", lambda name: None)
    with pytest.raises(RegardError, match="--download needs huggingface_hub; pip install"):
        regard.import_model("someone/model", tmp_path / "other", download=True)


def test_an_existing_folder_is_kept(tmp_path: Path):
    folder, _ = hf_folder(tmp_path / "model")
    (tmp_path / "out").mkdir()
    with pytest.raises(RegardError, match="exists; remove it, or choose another folder"):
        regard.import_model(folder, tmp_path / "out")


def test_links_inside_the_hub_cache_are_followed(tmp_path: Path):
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1234"
    snapshot.parent.mkdir(parents=True)
    folder, _ = hf_folder(snapshot)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(f"../../blobs/{number}")
    regard.import_model(folder, tmp_path / "out")
    assert (tmp_path / "out/manifest.json").is_file()


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_and_shards_are_read(precision: torch.dtype, tmp_path: Path):
    folder, model = hf_folder(tmp_path / "model", "bart", 0)
    expected = {name: weight.to(precision) for name, weight in model.state_dict().items()}
    change_weights(folder, lambda t: t.update({name: one.to(precision) for name, one in t.items()}))
    shards(folder)
    read = CheckpointFolder(folder)
    assert len({*read.weight_files.values()}) == 2
    for name in read.shapes:
        assert read.read_tensor(name).dtype == torch.float32
        assert torch.equal(read.read_tensor(name), expected[name].float())
    regard.import_model(folder, tmp_path / "out")


def test_large_models_are_saved_in_shards(tmp_path: Path):
    folder, model = hf_folder(tmp_path / "model", "t5", 0)
    (folder / "model.safetensors").unlink()
    write_folder(model, folder, max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    regard.import_model(folder, tmp_path / "out")
