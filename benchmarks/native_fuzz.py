"""Random byte mutations of a model's files against the native loader, under the sanitizers.

Checksums are not verified here: they would reject every mutation before the loader sees it. Each
mutated model must raise a RegardError or be searched without a sanitizer report.

    python benchmarks/native_fuzz.py --mutations 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from regard.config import ModelSettings, parse
from regard.errors import RegardError
from regard.native import NativeModel, library, read_tensors
from regard.native.compiler import compile_engine, find_compiler

SANITIZERS = (
    "-O1",
    "-DREGARD_UNROLL=",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
SOURCES = [[4, 3, 5], [6] * 7]
SETTINGS = {
    "kind": "transformer",
    "width": 8,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "ffn_width": 6,
    "position": {"kind": "t5", "buckets": 8, "max_distance": 6},
}


def write_model(folder: Path) -> None:
    """A tiny model: settings as JSON and random weights."""
    from regard.bundle.model_files import unique_parameters
    from regard.models import build

    settings = parse(ModelSettings, SETTINGS, "model")
    weights = unique_parameters(build(settings, 8, 9))
    arrays = {name: tensor.detach().numpy().copy() for name, tensor in weights.items()}
    save_file(arrays, folder / "weights.safetensors")
    values = {"model": settings.model_dump(mode="json"), "sizes": [8, 9]}
    (folder / "config.json").write_text(json.dumps(values))


def run_model(folder: Path, *, int8: bool) -> None:
    """Load and search the model of a folder, as a bundle is loaded."""
    try:
        values = json.loads((folder / "config.json").read_bytes())
        sizes = values["sizes"]
        if not all(isinstance(size, int) and 0 < size < 1 << 31 for size in sizes):
            raise RegardError(f"its vocabulary sizes are {sizes}")
        settings = parse(ModelSettings, values["model"], "model")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RegardError(str(error)) from None
    tensors = read_tensors(folder / "weights.safetensors")
    model = NativeModel(settings.model_dump(mode="json"), tuple(sizes), tensors, int8=int8)
    found = model.search(SOURCES, [12] * len(SOURCES), threads=1)
    assert all(np.isfinite(one[0].score) for one in found)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A copy with a few random bytes changed, sometimes shortened."""
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        mutated[chance.randrange(len(mutated))] = chance.randrange(256)
    return bytes(mutated[: chance.randrange(len(mutated))] if chance.random() < 0.05 else mutated)


def mutate_many(folder: Path, mutations: int, seed: int) -> dict[str, int]:
    """Run mutated models; returns how many were refused and how many were searched."""
    originals = {
        name: (folder / name).read_bytes() for name in ("config.json", "weights.safetensors")
    }
    header = 8 + int.from_bytes(originals["weights.safetensors"][:8], "little")
    chance, counts = random.Random(seed), {"refused": 0, "searched": 0}
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as place:
        trial = Path(place)
        for name, data in originals.items():
            (trial / name).write_bytes(data)
        for _ in range(mutations):
            part = chance.choice(("config", "header", "weights"))
            name = "config.json" if part == "config" else "weights.safetensors"
            data = originals[name]
            if part == "config":
                changed = mutate(data, chance)
            elif part == "header":
                changed = mutate(data[:header], chance) + data[header:]
            else:
                changed = data[:header] + mutate(data[header:], chance)
            (trial / name).write_bytes(changed)
            try:
                run_model(trial, int8=chance.random() < 0.5)
                counts["searched"] += 1
            except RegardError:
                counts["refused"] += 1
            (trial / name).write_bytes(data)
    return counts


def run_child(engine: str, folder: str, mutations: str, seed: str) -> None:
    """The process that loads mutated models with the sanitized engine."""
    library.LIBRARY = Path(engine)
    print(json.dumps(mutate_many(Path(folder), int(mutations), int(seed))))


def main() -> None:
    """Build the sanitized engine, run the mutations in another process and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_model(folder)
        engine = compile_engine(folder / "engine.so", extra=SANITIZERS)
        compiler = find_compiler() or []
        runtimes = [
            subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True)
            for name in ("libasan.so", "libubsan.so")
        ]
        # Python itself is not sanitized, so the runtimes are loaded first; its leaks are ignored.
        environment = {
            **os.environ,
            "LD_PRELOAD": " ".join(done.stdout.strip() for done in runtimes),
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        }
        arguments = [str(engine), place, str(options.mutations), str(options.seed)]
        command = [sys.executable, __file__, "--child", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the loader failed on a mutation:\n{done.stderr[-4000:]}")
    facts = {"benchmark": "native_fuzz", "mutations": options.mutations, "seed": options.seed}
    print(json.dumps({**facts, **json.loads(done.stdout), "crashes": 0}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run_child(*sys.argv[2:])
    else:
        main()
