"""The data sets of the quality benchmark, each read as it is distributed: pairs to learn from, questions to answer.
Where to get them: docs/quality.md.

A question has one right answer or several (variants), and a group where figures are means of groups (languages). Where
a set comes without a dev part, some of its training sources are held out by a fixed seed, whatever the seed of a run.
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
SPACE = "▁"  # a space inside a word that is spelt out in letters between spaces


class Question(NamedTuple):
    """A source, all its right answers, and the group it belongs to."""

    source: str
    right: list[str]
    group: str = ""


@dataclass(frozen=True)
class Parts:
    """A data set: what is learned from, what is chosen by, and what is reported once."""

    train: Pairs
    dev: list[Question]
    tests: dict[str, list[Question]]


def cmudict(data: Path) -> Parts:
    """Spelling → sound; a word has a line for each of its pronunciations. Dev: 2,670 of the training words."""
    folder = data / "cmudict-standard-split"
    train, test = (columns(folder / f"g014b2b.{part}.gz") for part in ("train", "test"))
    learned, dev = held_out(train, 2_670)
    return Parts(learned, dev, {"test": grouped(test)})


def short_words(data: Path, longest: int) -> Parts:
    """The same with words of at most so many letters to learn from, and the test words by their length."""
    whole = cmudict(data)
    test = whole.tests["test"]
    ends = [0, longest, longest + 2, longest + 4, longest + 6, 100]
    tests = {
        f"{start + 1}–{end}" if end < 100 else f"{start + 1}+": [q for q in test if start < len(q.source) <= end]
        for start, end in pairwise(ends)
    }
    train = [pair for pair in whole.train if len(pair[0]) <= longest]
    return Parts(train, [q for q in whole.dev if len(q.source) <= longest], {k: v for k, v in tests.items() if v})


def multi30k(data: Path, form: str) -> Parts:
    """Captions, line by line; `tok` is lower-cased, normalised and tokenised, `raw` as written."""
    middle = ".lc.norm.tok" if form == "tok" else ""
    folder = data / "multi30k"
    folder = folder / "data" / "task1" if (folder / "data").is_dir() else folder  # as its repository has it

    def side(part: str, language: str) -> list[str]:
        return [plain(line) for line in lines(folder / form / f"{part}{middle}.{language}.gz")]

    def pairs(part: str) -> Pairs:
        return list(zip(side(part, "en"), side(part, "de"), strict=True))

    tests = {"2016": "test_2016_flickr", "2017": "test_2017_flickr", "coco": "test_2017_mscoco"}
    return Parts(pairs("train"), single(pairs("val")), {name: single(pairs(part)) for name, part in tests.items()})


def tatoeba(data: Path) -> Parts:
    """Sentences; the test set is asked line by line, one reference each, as its other results were."""
    folder = data / "tatoeba-en-de"
    names = ("train.decontaminated", "dev", "tatoeba-test-v2020-07-28")
    train, dev, test = (columns(folder / f"{name}.tsv.gz") for name in names)
    return Parts(train, single(dev), {"test": single(test)})


def names(data: Path) -> Parts:
    """English names → Russian letters. The third column counts how often a pair was seen; accuracy ignores it."""
    rows = members(data / "name-transliteration" / "ne_transliteration.tar.xz", "wd_russian_", "data")
    train, dev, test = (table(rows[f"wd_russian_{share}"]) for share in (64, 16, 20))
    return Parts(train, grouped(dev), {"test": grouped(test)})


def scan(data: Path, split: str) -> Parts:
    """Commands → actions. Dev: a twentieth of the training commands, which says nothing of generalising."""
    folder = {"length": "length_split/tasks_{}_length.txt", "around_right": "template_split/tasks_{}_template_{}.txt"}
    names = [folder[split].format(part, split) for part in ("train", "test")]
    rows = members(data / "scan" / "scan.tar.xz", folder[split].split("/")[0])
    train, test = (_commands(rows[name]) for name in names)
    learned, dev = held_out(train, len(train) // 20)
    return Parts(learned, dev, {"test": by_length(test)})


def scan_cut(data: Path, longest: int) -> Parts:
    """All of SCAN, cut by length: answers of at most so many actions are learned from, all longer ones are the test."""
    both = _commands(members(data / "scan" / "scan.tar.xz", "tasks.txt")["tasks.txt"])
    short = [pair for pair in both if len(pair[1].split()) <= longest]
    long = [pair for pair in both if len(pair[1].split()) > longest]
    learned, dev = held_out(short, len(short) // 20)
    return Parts(learned, dev, {"test": by_length(long)})


def scan_choice(data: Path, split: str, far: Callable[[str, str], bool]) -> Parts:
    """To choose settings by: a split's training commands alone, with those that lie farther off as dev."""
    whole = scan(data, split)
    both = whole.train + [(question.source, right) for question in whole.dev for right in question.right]
    return Parts([pair for pair in both if not far(*pair)], by_length(pair for pair in both if far(*pair)), {})


def inflection(data: Path) -> Parts:
    """Lemma and tags → form, all languages with a high-resource part in one set; a group for each language."""
    rows = members(data / "inflection-2017" / "sigmorphon2017_task1.tar.xz", ("all/task1/", "answers/task1/"))
    ending = "-train-high"
    languages = sorted(name.split("/")[-1].removesuffix(ending) for name in rows if name.endswith(ending))

    def questions(place: str, ending: str) -> Iterator[Question]:
        for language in languages:
            yield from grouped(_forms(rows[f"{place}/task1/{language}{ending}"], language), language)

    train = [pair for language in languages for pair in _forms(rows[f"all/task1/{language}{ending}"], language)]
    tests = {"test": list(questions("answers", "-uncovered-test"))}
    return Parts(train, list(questions("all", "-dev")), tests)


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
    "scan-length-choice": lambda data: scan_choice(data, "length", lambda _, done: len(done.split()) > 18),
    "scan-around-right-choice": lambda data: scan_choice(data, "around_right", lambda x, _: "opposite right" in x),
    "inflection-2017": inflection,
}


def asked_form(lemma: str, tags: str, language: str) -> str:
    """`<german> <V> <PST> s a g e n`: language and tags are symbols of their own, and so is every letter."""
    letters = [SPACE if letter == " " else letter for letter in nfc(lemma)]
    return " ".join([f"<{language}>", *(f"<{tag}>" for tag in tags.split(";")), *letters])


def grouped(pairs: Iterable[tuple[str, str]], group: str = "") -> list[Question]:
    """A question for each source, with all its targets, in order of appearance."""
    found: dict[str, list[str]] = {}
    for source, target in pairs:
        found.setdefault(source, []).append(target)
    return [Question(source, right, group) for source, right in found.items()]


def single(pairs: Iterable[tuple[str, str]]) -> list[Question]:
    """A question for each pair, also where a source comes again."""
    return [Question(source, [target]) for source, target in pairs]


def by_length(pairs: Iterable[tuple[str, str]]) -> list[Question]:
    """The same, in groups by the number of symbols in the answer."""
    return [Question(source, [target], str(len(target.split()))) for source, target in pairs]


def held_out(pairs: Pairs, count: int) -> tuple[Pairs, list[Question]]:
    """The pairs left to learn from, and the questions of `count` sources with all their targets."""
    sources = sorted({source for source, _ in pairs})
    held = set(random.Random(HELD_OUT_SEED).sample(sources, count))
    learned = [pair for pair in pairs if pair[0] not in held]
    return learned, grouped(pair for pair in pairs if pair[0] in held)


def write(parts: Parts, folder: Path) -> None:
    """`train.tsv` and `dev.tsv` as `regard train` reads them, and all questions as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    dev = [(question.source, right) for question in parts.dev for right in question.right]
    write_pairs(folder / "train.tsv", parts.train)
    write_pairs(folder / "dev.tsv", dev)
    questions = {"dev": parts.dev, **{f"test {name}": test for name, test in parts.tests.items()}}
    (folder / "questions.json").write_text(json.dumps(questions, ensure_ascii=False), encoding="utf-8")


def write_pairs(path: Path, pairs: Pairs) -> None:
    """A line for each pair: source, tab, target."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def read_pairs(path: Path) -> Pairs:
    """The pairs that `write_pairs` left."""
    return table(path.read_text(encoding="utf-8"))


def read_questions(folder: Path) -> dict[str, list[Question]]:
    """The questions that `write` left: `dev`, and `test NAME` for each test set."""
    kept = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
    return {name: [Question(*question) for question in questions] for name, questions in kept.items()}


def _forms(text: str, language: str) -> Pairs:
    rows = (line.split("\t") for line in text.split("\n") if line)
    return [(asked_form(lemma, tags, language), form) for lemma, form, tags in rows]


def _commands(text: str) -> Pairs:
    return [tuple(line.removeprefix("IN: ").split(" OUT: ")) for line in text.split("\n") if line]  # type: ignore[misc]
