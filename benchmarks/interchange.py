"""Imports of Hugging Face models against the originals: every family, several sizes, 100 inputs.

Tiny random models of each family are saved, imported, and compared with `transformers`: logits,
greedy and beam outputs on the torch and the native engine, and the tokens of 1,000 lines of mixed
scripts. It takes about five minutes on two cores.
"""

import argparse
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from harness import Check, report
from interchange_imports import compare_search, largest_difference, random_sources
from interchange_models import NAMES, SIZES, random_hf_model, write_folder
from interchange_tokenizers import WRITERS, count_differences, mixed_lines

import regard

ENGINES = ("torch", "native")
BEAMS = {1: "greedy", 4: "beam 4"}
TOLERANCE = 1e-4


def compare_imports(names: Sequence[str], inputs: int) -> list[Check]:
    """Import every model and count outputs that differ."""
    differences: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for name in names:
        for size in SIZES:
            original = random_hf_model(name, size)
            with tempfile.TemporaryDirectory() as folder:
                home = Path(folder)
                write_folder(original, home / "model")
                regard.import_model(home / "model", home / "out")
                pipelines = [regard.load(home / "out", engine=engine) for engine in ENGINES]
                bundle = pipelines[0].bundle
                sources = random_sources(bundle, inputs)
                difference = largest_difference(bundle, original, sources[:20])
                differences[name] = max(differences.get(name, 0.0), difference)
                counts["models"] += 1
                for beam, search in BEAMS.items():
                    found = compare_search(bundle, original, sources, pipelines, beam=beam)
                    for engine, one in zip(ENGINES, found, strict=True):
                        counts[f"{search}, {engine}"] += one.outputs
                        counts[f"{search}, {engine}: different"] += one.different
                    counts[f"{search}: close"] += found[0].close
                    counts[f"{search}: tokens"] += found[0].tokens
            print(f"{name} {size}: logits differ by at most {difference:.1e}", flush=True)
    checks = [Check("models imported", counts["models"], None, None, True)]
    checks += [
        Check(f"{name}: largest difference of a logit", one, TOLERANCE, TOLERANCE, one <= TOLERANCE)
        for name, one in differences.items()
    ]
    for search in BEAMS.values():
        for engine in ENGINES:
            total, different = (
                counts[f"{search}, {engine}{ending}"] for ending in ("", ": different")
            )
            name = f"{search}, {engine}: outputs of {total:,} that differ"
            checks.append(Check(name, different, 0, 0, different == 0))
        for what in ("close", "tokens"):
            label = f"{search}: {'near-ties' if what == 'close' else 'tokens of the outputs'}"
            checks.append(Check(label, counts[f"{search}: {what}"], None, None, True))
    return checks


def compare_tokenizers(kinds: Sequence[str]) -> list[Check]:
    """Count the lines that an imported tokenizer splits otherwise than the original."""
    lines, checks = mixed_lines(), []
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            different, total = count_differences(kind, Path(folder), lines)
        name = f"{kind} tokenizer: lines of {total:,} that differ"
        checks.append(Check(name, different, 0, 0, different == 0))
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=100, help="sources of each search")
    parser.add_argument("--families", nargs="*", default=NAMES, help="families to import")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the libraries that are compared
    transformers.logging.set_verbosity_error()
    checks = compare_imports(options.families, options.inputs)
    report("interchange", checks + compare_tokenizers(list(WRITERS)))


if __name__ == "__main__":
    main()
