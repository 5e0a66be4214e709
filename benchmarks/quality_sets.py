"""The data sets of the quality benchmark, read as distributed: training pairs and examples.

docs/quality.md says where to get them. An example has one reference or several (variants), and a
group if figures are means of groups (languages). If a set has no dev part, some of its training
sources are held out by a fixed seed, independent of the seed of a run.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from quality_files import Pairs, columns, lines, members, plain, table

from regard.text.tokenizers import nfc

HELD_OUT_SEED = 2017
SPACE = "▁"  # a space inside a word whose letters are separated by spaces


class Example(NamedTuple):
    """A source, all its references, and its group."""

    source: str
    references: list[str]
    group: str = ""


@dataclass(frozen=True)
class Parts:
    """A data set: training pairs, dev examples to choose by, and test sets."""

    train: Pairs
    dev: list[Example]
    tests: dict[str, list[Example]]


def cmudict(data: Path) -> Parts:
    """Spelling → pronunciation, one line per variant. Dev: 2,670 of the training words."""
    folder = data / "cmudict-standard-split"
    train, test = (columns(folder / f"g014b2b.{part}.gz") for part in ("train", "test"))
    learned, dev = hold_out(train, 2_670)
    return Parts(learned, dev, {"test": grouped(test)})


def short_words(data: Path, longest: int) -> Parts:
    """The same, trained on words of at most `longest` letters; test words grouped by length."""
    whole = cmudict(data)
    test = whole.tests["test"]
    ends = [0, longest, longest + 2, longest + 4, longest + 6, 100]
    tests = {
        f"{start + 1}–{end}" if end < 100 else f"{start + 1}+": [
            q for q in test if start < len(q.source) <= end
        ]
        for start, end in pairwise(ends)
    }
    train = [pair for pair in whole.train if len(pair[0]) <= longest]
    return Parts(
        train,
        [q for q in whole.dev if len(q.source) <= longest],
        {k: v for k, v in tests.items() if v},
    )


def multi30k(data: Path, form: str) -> Parts:
    """Captions, line by line; `tok` is lower-cased, normalised and tokenised, `raw` is not."""
    middle = ".lc.norm.tok" if form == "tok" else ""
    folder = data / "multi30k"
    folder = (
        folder / "data" / "task1" if (folder / "data").is_dir() else folder
    )  # as in its repository

    def side(part: str, language: str) -> list[str]:
        return [plain(line) for line in lines(folder / form / f"{part}{middle}.{language}.gz")]

    def pairs(part: str) -> Pairs:
        return list(zip(side(part, "en"), side(part, "de"), strict=True))

    tests = {"2016": "test_2016_flickr", "2017": "test_2017_flickr", "coco": "test_2017_mscoco"}
    return Parts(
        pairs("train"),
        single(pairs("val")),
        {name: single(pairs(part)) for name, part in tests.items()},
    )


def tatoeba(data: Path) -> Parts:
    """Sentences; the test set is scored line by line with one reference, as in other results."""
    folder = data / "tatoeba-en-de"
    names = ("train.decontaminated", "dev", "tatoeba-test-v2020-07-28")
    train, dev, test = (columns(folder / f"{name}.tsv.gz") for name in names)
    return Parts(train, single(dev), {"test": single(test)})


def names(data: Path) -> Parts:
    """English names → Russian letters. The third column, a count, is ignored."""
    rows = members(
        data / "name-transliteration" / "ne_transliteration.tar.xz", "wd_russian_", "data"
    )
    train, dev, test = (table(rows[f"wd_russian_{share}"]) for share in (64, 16, 20))
    return Parts(train, grouped(dev), {"test": grouped(test)})


def scan(data: Path, split: str) -> Parts:
    """Commands → actions. Dev: a twentieth of the training commands; it does not test
    generalising."""
    folder = {
        "length": "length_split/tasks_{}_length.txt",
        "around_right": "template_split/tasks_{}_template_{}.txt",
    }
    names = [folder[split].format(part, split) for part in ("train", "test")]
    rows = members(data / "scan" / "scan.tar.xz", folder[split].split("/")[0])
    train, test = (_commands(rows[name]) for name in names)
    learned, dev = hold_out(train, len(train) // 20)
    return Parts(learned, dev, {"test": by_length(test)})


def scan_cut(data: Path, longest: int) -> Parts:
    """All of SCAN: outputs of at most `longest` actions are trained on, longer ones are the
    test."""
    both = _commands(members(data / "scan" / "scan.tar.xz", "tasks.txt")["tasks.txt"])
    short = [pair for pair in both if len(pair[1].split()) <= longest]
    long = [pair for pair in both if len(pair[1].split()) > longest]
    learned, dev = hold_out(short, len(short) // 20)
    return Parts(learned, dev, {"test": by_length(long)})


def scan_choice(data: Path, split: str, far: Callable[[str, str], bool]) -> Parts:
    """To choose settings: the training commands of a split, with the more distant ones as dev."""
    whole = scan(data, split)
    both = whole.train + [(one.source, target) for one in whole.dev for target in one.references]
    return Parts(
        [pair for pair in both if not far(*pair)],
        by_length(pair for pair in both if far(*pair)),
        {},
    )


def inflection(data: Path) -> Parts:
    """Lemma and tags → form: all languages with a high-resource part, one group per language."""
    rows = members(
        data / "inflection-2017" / "sigmorphon2017_task1.tar.xz", ("all/task1/", "answers/task1/")
    )
    ending = "-train-high"
    languages = sorted(
        name.split("/")[-1].removesuffix(ending) for name in rows if name.endswith(ending)
    )

    def examples(place: str, ending: str) -> Iterator[Example]:
        for language in languages:
            yield from grouped(
                _forms(rows[f"{place}/task1/{language}{ending}"], language), language
            )

    train = [
        pair
        for language in languages
        for pair in _forms(rows[f"all/task1/{language}{ending}"], language)
    ]
    tests = {"test": list(examples("answers", "-uncovered-test"))}
    return Parts(train, list(examples("all", "-dev")), tests)


READERS: dict[str, Callable[[Path], Parts]] = {
    "cmudict": cmudict,
    "cmudict-short": lambda data: short_words(data, 8),
    "multi30k-en-de-tok": lambda data: multi30k(data, "tok"),
    "multi30k-en-de-raw": lambda data: multi30k(data, "raw"),
    "tatoeba-en-de": tatoeba,
    "names-ru": names,
    "scan-length": lambda data: scan(data, "length"),
    "scan-length-26": lambda data: scan_cut(data, 26),
    "scan-around-right": lambda data: scan(data, "around_right"),
    "scan-length-choice": lambda data: scan_choice(
        data, "length", lambda _, done: len(done.split()) > 18
    ),
    "scan-around-right-choice": lambda data: scan_choice(
        data, "around_right", lambda x, _: "opposite right" in x
    ),
    "inflection-2017": inflection,
}


def inflection_source(lemma: str, tags: str, language: str) -> str:
    """`<german> <V> <PST> s a g e n`: language, tags and letters are one symbol each."""
    letters = [SPACE if letter == " " else letter for letter in nfc(lemma)]
    return " ".join([f"<{language}>", *(f"<{tag}>" for tag in tags.split(";")), *letters])


def grouped(pairs: Iterable[tuple[str, str]], group: str = "") -> list[Example]:
    """One example per source, with all its targets, in order of appearance."""
    found: dict[str, list[str]] = {}
    for source, target in pairs:
        found.setdefault(source, []).append(target)
    return [Example(source, targets, group) for source, targets in found.items()]


def single(pairs: Iterable[tuple[str, str]]) -> list[Example]:
    """One example per pair, also for repeated sources."""
    return [Example(source, [target]) for source, target in pairs]


def by_length(pairs: Iterable[tuple[str, str]]) -> list[Example]:
    """One example per pair, grouped by the number of symbols in the target."""
    return [Example(source, [target], str(len(target.split()))) for source, target in pairs]


def hold_out(pairs: Pairs, count: int) -> tuple[Pairs, list[Example]]:
    """The remaining training pairs, and examples of `count` sources with all their targets."""
    sources = sorted({source for source, _ in pairs})
    dev = set(random.Random(HELD_OUT_SEED).sample(sources, count))
    learned = [pair for pair in pairs if pair[0] not in dev]
    return learned, grouped(pair for pair in pairs if pair[0] in dev)


def write(parts: Parts, folder: Path) -> None:
    """Write `train.tsv` and `dev.tsv` for `regard train`, and all examples as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    dev = [(one.source, target) for one in parts.dev for target in one.references]
    write_pairs(folder / "train.tsv", parts.train)
    write_pairs(folder / "dev.tsv", dev)
    examples = {"dev": parts.dev, **{f"test {name}": test for name, test in parts.tests.items()}}
    (folder / "examples.json").write_text(
        json.dumps(examples, ensure_ascii=False), encoding="utf-8"
    )


def write_pairs(path: Path, pairs: Pairs) -> None:
    """Write one line per pair: source, tab, target."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def read_pairs(path: Path) -> Pairs:
    """Read the pairs of `write_pairs`."""
    return table(path.read_text(encoding="utf-8"))


def read_examples(folder: Path) -> dict[str, list[Example]]:
    """Read the examples of `write`: `dev`, and `test NAME` for each test set."""
    stored = json.loads((folder / "examples.json").read_text(encoding="utf-8"))
    return {name: [Example(*example) for example in examples] for name, examples in stored.items()}


def _forms(text: str, language: str) -> Pairs:
    rows = (line.split("\t") for line in text.split("\n") if line)
    return [(inflection_source(lemma, tags, language), form) for lemma, form, tags in rows]


def _commands(text: str) -> Pairs:
    lines = [line.removeprefix("IN: ").split(" OUT: ") for line in text.split("\n") if line]
    return [(source, target) for source, target in lines]
