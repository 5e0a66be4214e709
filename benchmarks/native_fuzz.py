"""Random byte mutations of a bundle's files against the native loader, under the sanitizers.

Two kinds. A mutated model is loaded without its checksums, which would reject almost everything
before the loader sees it: it must raise a RegardError or be searched without a sanitizer report. A
mutated bundle is loaded as `regard predict` does: it must raise a RegardError or give the same
outputs.

    python benchmarks/native_fuzz.py --mutations 1000000 --bundles 100000
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Check, report
from safetensors.numpy import save_file

from regard.config import ModelSettings, parse
from regard.errors import RegardError
from regard.native import NativeModel, library, read_tensors
from regard.native.compiler import compile_engine, find_compiler
from regard.pretrained import MODELS

SANITIZERS = (
    "-O1",
    "-DREGARD_UNROLL=",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
SOURCES = [[4, 3, 5], [6] * 7]
WORDS, EXPECTED = ["attention"], ["AH T EH N SH AH N"]
HANG_SECONDS = 60
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
    if not all(np.isfinite(one[0].score) for one in found):  # as regard.searcher does
        raise RegardError("the outputs are not finite numbers; the weights are damaged")


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A copy with a few random bytes changed, sometimes shortened."""
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        mutated[chance.randrange(len(mutated))] = chance.randrange(256)
    return bytes(mutated[: chance.randrange(len(mutated))] if chance.random() < 0.05 else mutated)


def mutate_model(folder: Path, chance: random.Random) -> str:
    """Load a model with a mutated file, and restore the file."""
    part = chance.choice(("config", "header", "weights"))
    path = folder / ("config.json" if part == "config" else "weights.safetensors")
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    if part == "config":
        changed = mutate(data, chance)
    elif part == "header":
        changed = mutate(data[:header], chance) + data[header:]
    else:
        changed = data[:header] + mutate(data[header:], chance)
    path.write_bytes(changed)
    try:
        run_model(folder, int8=chance.random() < 0.5)
        return "searched"
    except RegardError:
        return "refused"
    finally:
        path.write_bytes(data)


def mutate_bundle(folder: Path, chance: random.Random) -> str:
    """Load a bundle with a mutated file, compare its outputs, and restore the file."""
    import regard

    path = chance.choice(sorted(folder.iterdir()))
    data = path.read_bytes()
    path.write_bytes(mutate(data, chance))
    try:
        outputs = [one.text for one in regard.load(folder, engine="native").many(WORDS)]
        return "same outputs" if outputs == EXPECTED else "other outputs"
    except RegardError:
        return "refused"
    finally:
        path.write_bytes(data)


def run_child(engine: str, folder: str, what: str, mutations: str, seed: str) -> None:
    """The process that loads mutated files with the sanitized engine. It ends if one hangs."""
    library.LIBRARY = Path(engine)
    one = {"models": mutate_model, "bundles": mutate_bundle}[what]
    chance, counts = random.Random(int(seed)), Counter[str]()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as home:
        trial = Path(home, what)
        shutil.copytree(Path(folder, what), trial)
        for _ in range(int(mutations)):
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            counts[one(trial, chance)] += 1
    print(json.dumps(counts))


def run_children(
    what: str, mutations: int, processes: int, start: Callable[..., subprocess.Popen[str]]
) -> tuple[Counter[str], list[str]]:
    """The outcomes of all mutations, and what crashed or hung processes wrote."""
    counts, failures = Counter[str](), []
    share = -(-mutations // processes)
    children = [start(what, share, seed) for seed in range(processes)]
    for child in children:
        output, errors = child.communicate()
        if child.returncode:
            failures.append(errors[-4000:])
        else:
            counts.update(json.loads(output))
    return counts, failures


def main() -> None:
    """Build the sanitized engine, run the mutations in another process and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutations", type=int, default=1_000_000, help="of a model")
    parser.add_argument("--bundles", type=int, default=100_000, help="mutations of a bundle")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "models").mkdir()
        write_model(folder / "models")
        shutil.copytree(MODELS / "spelling", folder / "bundles")
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

        def start(what: str, mutations: int, seed: int) -> subprocess.Popen[str]:
            arguments = [str(engine), place, what, str(mutations), str(seed)]
            return subprocess.Popen(
                [sys.executable, __file__, "--child", *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        for what, mutations in (("models", options.mutations), ("bundles", options.bundles)):
            if not mutations:
                continue
            counts, failures = run_children(what, mutations, options.processes, start)
            print(what, dict(counts), *failures, sep="\n", flush=True)
            done = counts.total()
            checks += [
                Check(f"mutations of {what}", done, None, mutations, done >= mutations),
                Check(f"{what}: crashes and hangs", len(failures), 0, 0, not failures),
            ]
            if what == "bundles":
                wrong = counts["other outputs"]
                checks.append(Check("bundles: other outputs", wrong, 0, 0, wrong == 0))
    report("native_fuzz", checks)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run_child(*sys.argv[2:])
    else:
        main()
