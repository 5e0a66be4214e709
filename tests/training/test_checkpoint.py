"""Checkpoints are restored bit for bit, and survive kills, full disks and damaged files."""

import errno
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.training import checkpoint
from regard.training.checkpoint import CheckpointError, flatten, read, unflatten, write


def same(a, b) -> bool:
    """Equal in type, dtype, shape and bits, all the way down."""
    if isinstance(a, torch.Tensor):
        bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


STATE = {
    "float64": torch.tensor([1 / 3, math.nan, -0.0], dtype=torch.float64),
    "bfloat16": torch.randn(3, 2).bfloat16(),
    "int64": torch.tensor(2**62 + 1),
    "bool": torch.tensor([True, False]),
    "empty": torch.zeros(0, 4),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "dots.in.names": {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}},
    "numbers": [1, 1.0, 0.1 + 0.2, 2**80, True, None, "é", math.inf, math.nan],
    "betas": (0.9, (0.999, [])),
    3: {0: {}, -1: "integer keys"},
    "rng": torch.get_rng_state(),
    "python": random.getstate(),
}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def spoil(path: Path, where: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)


def test_every_kind_of_value_is_restored(tmp_path):
    write(tmp_path, "step-1", {"all": STATE}, {"step": 1, "seed": [3, 0.1]})
    state, progress, warning = read(tmp_path)
    assert same(state, {"all": STATE})
    assert (progress, warning) == ({"step": 1, "seed": [3, 0.1]}, None)


def test_flattening_gives_tensors_and_plain_json():
    tensors, outline = flatten({"a": [torch.ones(2), (1, None)]})
    assert list(tensors) == ["a.0"]
    assert outline == {"dict": [["a", {"list": [{"tensor": "a.0"}, {"tuple": [1, None]}]}]]}
    assert same(unflatten(tensors, outline), {"a": [torch.ones(2), (1, None)]})


def test_paths_that_read_alike_stay_apart():
    tree = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}, "1": torch.ones(2), 1: torch.zeros(2)}
    assert same(unflatten(*flatten(tree)), tree)


def test_shared_tensors_are_stored_once_and_views_apart(tmp_path):
    table = torch.arange(12.0)
    write(
        tmp_path, "x", {"a": table, "b": table, "part": table[3:5], "square": table.view(3, 4)}, {}
    )
    state = read(tmp_path).state
    assert state["a"] is state["b"]
    assert same(state, {"a": table, "b": table, "part": table[3:5], "square": table.view(3, 4)})


def test_unsupported_values_are_named(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"^optimizer.0.when is a PosixPath, which a checkpoint cannot store"
    ):
        write(tmp_path / "new", "x", {"optimizer": [{"when": Path("x")}]}, {})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD], ids=["adamw", "sgd"])
def test_restored_training_gives_the_same_bits(tmp_path, make):
    def fresh():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.3), nn.Linear(7, 2))
        return model, make(model.parameters(), lr=0.01)

    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(4, 5)).square().mean().backward()
            optimizer.step()

    model, optimizer = fresh()
    steps(model, optimizer, 3)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
    }
    write(tmp_path, "step-3", state, {})
    steps(model, optimizer, 4)
    again, resumed = fresh()
    found = read(tmp_path).state
    again.load_state_dict(found["model"])
    resumed.load_state_dict(found["optimizer"])
    torch.set_rng_state(found["rng"])
    steps(again, resumed, 4)
    assert same(dict(again.state_dict()), dict(model.state_dict()))
    assert same(resumed.state_dict(), optimizer.state_dict())


def test_the_last_two_are_kept_in_order_of_writing(tmp_path):
    assert read(tmp_path) is None
    for step in (9, 10, 100, 2):
        write(tmp_path, f"step-{step}", {"x": torch.tensor(step)}, {"step": step})
    assert names(tmp_path) == ["00000003.step-100.safetensors", "00000004.step-2.safetensors"]
    assert read(tmp_path).progress == {"step": 2}


def test_reading_deletes_what_a_killed_process_left(tmp_path):
    first = write(tmp_path, "step-1", {"x": torch.ones(3)}, {"step": 1})
    data = first.read_bytes()
    for step in (2, 3):
        write(tmp_path, f"step-{step}", {"x": torch.ones(3)}, {"step": step})
    first.write_bytes(data)  # as after a kill between the last two steps of a write
    assert read(tmp_path).progress == {"step": 3}
    assert names(tmp_path) == ["00000002.step-2.safetensors", "00000003.step-3.safetensors"]


@pytest.mark.parametrize("damage", ["data", "facts", "truncated", "empty", "foreign"])
def test_a_damaged_checkpoint_falls_back_with_a_warning(tmp_path, damage):
    write(tmp_path, "step-1", {"x": torch.ones(3)}, {"step": 1})
    newest = write(tmp_path, "step-2", {"x": torch.zeros(3)}, {"step": 2})
    data = newest.read_bytes()
    if damage == "data":
        spoil(newest)
    else:
        changed = {
            "facts": data.replace(b'\\"step\\": 2', b'\\"step\\": 3'),
            "truncated": data[:-1],
            "empty": b"",
        }
        assert changed["facts"] != data
        newest.write_bytes(changed.get(damage, b"PK" * 99))
    state, progress, warning = read(tmp_path)
    assert same(state, {"x": torch.ones(3)})
    assert progress == {"step": 1}
    assert warning.startswith("damaged checkpoint '00000002.step-2.safetensors' (")
    assert warning.endswith("resuming from '00000001.step-1.safetensors' before it")
    assert "\n" not in warning
    assert read(tmp_path).warning is None
    write(tmp_path, "step-2", {}, {"step": 2})
    assert names(tmp_path) == ["00000001.step-1.safetensors", "00000003.step-2.safetensors"]


def test_all_checkpoints_damaged_is_an_error(tmp_path):
    for step in (1, 2):
        spoil(write(tmp_path, f"step-{step}", {"x": torch.ones(3)}, {}))
    for _ in range(2):
        with pytest.raises(
            CheckpointError,
            match=r"is valid \('00000002.*its sha256 differs\); start over with --restart$",
        ):
            read(tmp_path)


def test_reading_removes_what_a_kill_left(tmp_path):
    """A process killed between writing a checkpoint and deleting the oldest leaves three."""
    for step in (1, 2):
        write(tmp_path, f"step-{step}", {"x": torch.ones(3)}, {"step": step})
    oldest = tmp_path / "00000001.step-1.safetensors"
    content = oldest.read_bytes()
    write(tmp_path, "step-3", {"x": torch.ones(3)}, {"step": 3})
    oldest.write_bytes(content)
    assert read(tmp_path).progress == {"step": 3}
    assert names(tmp_path) == ["00000002.step-2.safetensors", "00000003.step-3.safetensors"]


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["fsync", "save_file", "replace"])
def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, where):
    write(tmp_path, "step-1", {"x": torch.ones(3)}, {"step": 1})
    owner = {"fsync": os, "save_file": checkpoint, "replace": Path}[where]
    with monkeypatch.context() as broken:
        broken.setattr(owner, where, full)
        wanted = (
            r"^cannot write checkpoint 'step-2' in '.*': No space left on device; the last good"
        )
        with pytest.raises(CheckpointError, match=wanted):
            write(tmp_path, "step-2", {"x": torch.zeros(3)}, {"step": 2})
    assert names(tmp_path) == ["00000001.step-1.safetensors"]
    assert read(tmp_path).progress == {"step": 1}


def test_a_file_size_limit_is_reported(tmp_path):
    script = f"""
import resource, torch
from regard.training.checkpoint import CheckpointError, write
write({str(tmp_path)!r}, "step-1", {{"x": torch.ones(3)}}, {{}})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write({str(tmp_path)!r}, "step-2", {{"x": torch.ones(99_999)}}, {{}})
except CheckpointError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert names(tmp_path) == ["00000001.step-1.safetensors"]


@pytest.mark.parametrize(
    "act", [read, lambda folder: write(folder, "step-2", {}, {})], ids=["read", "write"]
)
def test_files_of_a_killed_process_are_removed(tmp_path, act):
    write(tmp_path, "step-1", {}, {})
    (tmp_path / ".step-9.partial").write_bytes(b"half")
    act(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_kill_at_any_moment_leaves_a_valid_checkpoint(tmp_path):
    script = f"""
import torch
from regard.training.checkpoint import read, write
found = read({str(tmp_path)!r})
step = found.progress["step"] if found else 0
assert not found or (found.warning is None and found.state["x"].eq(step).all())
while True:
    step += 1
    state = {{"x": torch.full((300_000,), step)}}
    write({str(tmp_path)!r}, f"step-{{step}}", state, {{"step": step}})
    print(step, flush=True)
"""
    reached = 0
    for wait in (0.0, 0.013, 0.031):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        while int(process.stdout.readline()) < reached + 2:
            pass
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = read(tmp_path)
        assert found.warning is None
        assert found.progress["step"] >= reached + 2
        assert found.state["x"].eq(found.progress["step"]).all()
        reached = found.progress["step"]
    assert len(names(tmp_path)) <= 3


def test_temporary_files_of_safetensors_are_removed(tmp_path: Path):
    """It writes under a name of its own first; twenty kills in a row found one."""
    checkpoint.write(tmp_path, "one", {"weight": torch.ones(2)}, {})
    (tmp_path / ".tmpRv1LUq").write_bytes(b"half")
    checkpoint.read(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.one.safetensors"]
