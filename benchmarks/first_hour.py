"""Fine-tuning and ensembles as a new user would do them, in the Python API.

python benchmarks/first_hour.py DATA [--minutes 4] [--out OUT]

DATA has the folders tatoeba-en-de (English sentences) and name-transliteration (lists of names);
the pronunciations are those of the included CMU dictionary. Words are the entries that occur in a
sentence, names those that are in the lists and in no sentence. Three seeds are trained on the
words, one after the other; the first is fine-tuned on 2,000 names. Compared are, on names that no
model has seen: the dictionary model, the fine-tuned one, and one trained on the 2,000 names only;
and, on unseen words: each seed and the ensemble of the three.
"""

import argparse
import gzip
import hashlib
import re
import tarfile
import tempfile
from pathlib import Path

from harness import Check, report

import regard
from regard.seeds import train_seeds
from regard.text import group_references
from regard.text.reading import Pair
from regard.training.cmudict import dictionary

FINE_TUNING_NAMES = 2_000
HELD_OUT = 1_000
TEST = 2_000
METRIC = "phone_error_rate"
Pairs = list[tuple[str, str]]


def list_names(data: Path) -> set[str]:
    """All English names of one word, in lower case."""
    names = set()
    with tarfile.open(data / "name-transliteration" / "ne_transliteration.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is None or "wd_" not in member.name:
                continue
            for line in file.read().decode("utf-8", "replace").splitlines():
                name = line.split("\t")[0].strip().lower()
                if name.isalpha():
                    names.add(name)
    return names


def words_in_use(data: Path) -> set[str]:
    """All words of the English sentences, in lower case."""
    with gzip.open(data / "tatoeba-en-de/train.decontaminated.tsv.gz", "rt", encoding="utf-8") as f:
        return {word for line in f for word in re.findall(r"[a-z']+", line.split("\t")[0].lower())}


def split(data: Path) -> tuple[dict[str, Pairs], dict[str, Pairs]]:
    """Train, dev and test pairs of words and of names, in a fixed random order."""
    used = words_in_use(data)
    names = list_names(data) - used
    groups: dict[bool, dict[str, Pairs]] = {True: {}, False: {}}
    for word, phones in dictionary():
        if word in used or word in names:
            groups[word in names].setdefault(word, []).append((word, phones))
    parts = []
    for is_name, size in ((False, None), (True, FINE_TUNING_NAMES)):
        words = sorted(groups[is_name], key=lambda word: hashlib.sha256(word.encode()).digest())
        cut = {"test": words[:TEST], "dev": words[TEST : TEST + HELD_OUT]}
        rest = words[TEST + HELD_OUT :]
        cut["train"] = rest if size is None else rest[:size]
        lines = {
            n: [pair for word in some for pair in groups[is_name][word]] for n, some in cut.items()
        }
        parts.append(lines)
    return parts[0], parts[1]


def error_rate(pipeline: regard.Pipeline, pairs: Pairs) -> float:
    """The phone error rate on these pairs."""
    references = group_references(Pair(*pair) for pair in pairs)
    flat = [(source, target) for source, targets in references.items() for target in targets]
    return regard.evaluate(pipeline, flat)[METRIC]


def measure(data: Path, out: Path, minutes: float, device: str) -> list[Check]:
    """Train everything and compare."""
    words, names = split(data)
    print({part: len(pairs) for part, pairs in words.items()}, "pairs of words", flush=True)
    print({part: len(pairs) for part, pairs in names.items()}, "pairs of names", flush=True)
    seeds = train_seeds(
        words["train"],
        out / "words",
        3,
        held_out=words["dev"],
        minutes=minutes,
        device=device,
    )
    assert seeds.ensemble is not None
    first = seeds.pipelines[0]
    fine = {"held_out": names["dev"], "device": device}  # the default length
    tuned = regard.train(names["train"], out / "tuned", init=out / "words/seed-1", **fine)
    alone = regard.train(names["train"], out / "names-only", **fine)
    before, after = error_rate(first, names["test"]), error_rate(tuned, names["test"])
    scratch = error_rate(alone, names["test"])
    singles = [error_rate(pipeline, words["test"]) for pipeline in seeds.pipelines]
    joined = error_rate(seeds.ensemble, words["test"])
    mean = sum(singles) / len(singles)
    return [
        Check("names, dictionary model: phone error rate, %", before, None, None, True),
        Check("names, trained on 2,000 names only, %", scratch, None, None, True),
        Check("names, fine-tuned on 2,000 names, %", after, 0.0, before, after < before),
        Check("words, mean of three seeds, %", mean, None, None, True),
        Check("words, best of three seeds, %", min(singles), None, None, True),
        Check(
            "words, ensemble of three seeds, %", joined, 0.0, min(singles), joined < min(singles)
        ),
    ]


def main() -> None:
    """Parse the command line and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the two data sets")
    parser.add_argument("--minutes", type=float, default=4.0, help="of each dictionary training")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--out", type=Path, help="folder of the runs (default: temporary)")
    options = parser.parse_args()
    if options.out is not None:
        report("first_hour", measure(options.data, options.out, options.minutes, options.device))
        return
    with tempfile.TemporaryDirectory() as folder:
        report("first_hour", measure(options.data, Path(folder), options.minutes, options.device))


if __name__ == "__main__":
    main()
