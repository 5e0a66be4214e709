"""The small data sets of the benchmark of defaults, as files that `regard train` reads."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quality_files import members
from quality_sets import Example, Parts, cmudict, multi30k, names, write_pairs

from regard.text import Corpus, group_references
from regard.text.tokenizers import nfc

SLICES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
DEV = 2_670  # dev sources of slices, as many as the dictionary has
References = dict[str, set[str]]


@dataclass(frozen=True)
class Group:
    """One language or slice of a set: its files, and the references of its test sources."""

    part: str
    name: str
    train: Path
    dev: Path
    test: References
    settings: dict[str, Any] = field(default_factory=dict)  # beside the defaults
    tagged: bool = False  # several languages, named by a tag before each source
    text: bool = False  # running text: the error rate is 100 − BLEU

    def on_dev(self) -> "Group":
        """The same group with its dev part in place of the test part."""
        dev = group_references(Corpus([self.dev]))
        return replace(self, test={source: set(some) for source, some in dev.items()})


def g2p(data: Path, folder: Path) -> Iterator[Group]:
    """Words → sounds of 15 languages (SIGMORPHON 2020, task 1), 3,600 words each."""
    rows = members(data / "g2p-2020" / "sigmorphon2020_task1.tar.xz", "")
    for name in sorted(name for name in rows if name.endswith("_train.tsv")):
        stem = name.removesuffix("_train.tsv")
        language = stem.split("/")[-1]
        files = [_write(folder / f"{language}-{part}.tsv", rows[f"{stem}_{part}.tsv"])
                 for part in ("train", "dev")]  # fmt: skip
        lines = rows[f"{stem}_test.tsv"].split("\n")
        test = _references(line.split("\t") for line in lines if line)
        yield Group("g2p-2020", language, *files, test)


def g2p_together(data: Path, folder: Path) -> Iterator[Group]:
    """The same 15 languages in one file, each word after the tag of its language."""
    groups = list(g2p(data, folder / "languages"))
    parts = {"train": [one.train for one in groups], "dev": [one.dev for one in groups]}
    files = []
    for part, paths in parts.items():
        lines = [
            f"<{group.name}> {line}\n"
            for group, path in zip(groups, paths, strict=True)
            for line in path.read_text(encoding="utf-8").split("\n")
            if line
        ]
        files.append(_write(folder / f"{part}.tsv", "".join(lines)))
    test = {f"<{one.name}> {word}": right for one in groups for word, right in one.test.items()}
    yield Group("g2p-2020-together", "all", *files, test, tagged=True)


def inflection(data: Path, folder: Path, amount: str) -> Iterator[Group]:
    """Lemma and features → form of 52 languages (CoNLL–SIGMORPHON 2017, task 1)."""
    path = data / "inflection-2017" / "sigmorphon2017_task1.tar.xz"
    rows = members(path, ("all/task1/", "answers/task1/"))
    ending = f"-train-{amount}"
    for name in sorted(name for name in rows if name.endswith(ending)):
        language = name.split("/")[-1].removesuffix(ending)
        names = {"train": name, "dev": f"all/task1/{language}-dev"}
        test = rows.get(f"answers/task1/{language}-uncovered-test")
        if names["dev"] not in rows or test is None:
            continue
        files = [_write(folder / f"{language}-{part}.tsv", rows[one])
                 for part, one in names.items()]  # fmt: skip
        found = (line.split("\t") for line in test.split("\n") if line)
        references = _references(
            (f"{lemma} {tags.replace(' ', '')}", form) for lemma, form, tags in found
        )
        yield Group(f"inflection-2017-{amount}", language, *files, references)


def slices(part: str, parts: Parts, folder: Path, *, text: bool = False) -> Iterator[Group]:
    """Random slices of a set, nested, with the same dev and test part."""
    sources = sorted({source for source, _ in parts.train})
    random.Random(1).shuffle(sources)
    test = _all_references(next(iter(parts.tests.values())))
    dev = parts.dev if len(parts.dev) <= DEV else random.Random(1).sample(parts.dev, DEV)
    folder.mkdir(parents=True, exist_ok=True)
    for count in (*(one for one in SLICES if one < len(sources)), len(sources)):
        used = set(sources[:count])
        files = folder / f"{count}-train.tsv", folder / f"{count}-dev.tsv"
        write_pairs(files[0], [pair for pair in parts.train if pair[0] in used])
        write_pairs(files[1], [(one.source, x) for one in dev for x in one.references])
        yield Group(part, str(count), *files, test, text=text)


def dictionary(data: Path, folder: Path) -> Iterator[Group]:
    """Slices of CMUdict."""
    found = slices("cmudict-slices", cmudict(data), folder)
    return (group for group in found if int(group.name) in SLICES)


# What the defaults were for up to 1.2 M tokens before small data were studied (docs/log.md).
EARLIER = {"size": "small", "epochs": 40.0, "batch_tokens": 4_096}


def dictionary_before(data: Path, folder: Path) -> Iterator[Group]:
    """The same slices with the earlier defaults; for the largest, the defaults are the same."""
    for group in dictionary(data, folder):
        if int(group.name) <= 30_000:
            yield replace(group, part="cmudict-slices-before", settings=EARLIER)


SETS = {
    "g2p-2020": g2p,
    "g2p-2020-together": g2p_together,
    "inflection-2017-low": lambda data, folder: inflection(data, folder, "low"),
    "inflection-2017-medium": lambda data, folder: inflection(data, folder, "medium"),
    "inflection-2017-high": lambda data, folder: inflection(data, folder, "high"),
    "cmudict-slices": dictionary,
    "cmudict-slices-before": dictionary_before,
    "names-slices": lambda data, folder: slices("names-slices", names(data), folder),
    "multi30k-slices": lambda data, folder: slices(
        "multi30k-slices", multi30k(data, "raw"), folder, text=True
    ),
}


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _all_references(examples: Iterable[Example]) -> References:
    return _references((one.source, target) for one in examples for target in one.references)


def _references(rows: Iterator[list[str]] | Iterator[tuple[str, str]]) -> References:
    found: References = {}
    for source, target in rows:
        found.setdefault(nfc(source), set()).add(nfc(target))
    return found
