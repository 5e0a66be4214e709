"""The modules of the quality benchmark, and tiny versions of its data sets as distributed."""

import gzip
import io
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.append(
    str(Path(__file__).parent.parent.parent / "benchmarks")
)  # its files import one another by name


def packed(path: Path, files: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def zipped(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small data sets."""
    home = tmp_path_factory.mktemp("data")
    words = "".join(
        f"W{i}\tP{i % 7} Q\n" + (f"W{i}\tR S\n" if i % 5 == 0 else "") for i in range(2_700)
    )
    zipped(home / "cmudict-standard-split/g014b2b.train.gz", words)
    test = "READ\tR IY D\nREAD\tR EH D\nRED\tR EH D\nRECONSIDERING\tR\n"
    zipped(home / "cmudict-standard-split/g014b2b.test.gz", test)
    for part in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for form, middle in (("raw", ""), ("tok", ".lc.norm.tok")):
            zipped(home / f"multi30k/{form}/{part}{middle}.en.gz", f"{part} one .\nand two\n")
            zipped(home / f"multi30k/{form}/{part}{middle}.de.gz", f"{part}\teins .  \nund zwei\n")
    for name in ("train.decontaminated", "dev", "tatoeba-test-v2020-07-28"):
        zipped(home / f"tatoeba-en-de/{name}.tsv.gz", "Hi.\tHallo!\nHi.\tServus!\n")
    names = {f"wd_russian_{share}": f"name{share}\tн а м\t3\n" for share in (64, 16, 20)} | {
        "wd_hebrew_64": "a\tb\t1\n"
    }
    packed(home / "name-transliteration/ne_transliteration.tar.xz", names)
    times = {"once": 1, "twice": 2, "thrice": 3, "often": 4, "always": 5}
    acts = ["walk", "run", "jump", "look"]
    short = [
        f"IN: {act} {word} OUT: {' '.join([f'I_{act.upper()}'] * n)}"
        for act in acts
        for word, n in times.items()
    ]
    short += [
        f"IN: walk much OUT: {' '.join(['I_WALK'] * 20)}",
        "IN: run opposite right OUT: I_TURN_RIGHT I_RUN",
    ]
    long = f"IN: walk long OUT: {' '.join(['I_WALK'] * 27)}"
    scan = {
        "tasks.txt": "\n".join([*short, long]) + "\n",
        "length_split/tasks_train_length.txt": "\n".join(short) + "\n",
        "length_split/tasks_test_length.txt": long + "\n",
        "template_split/tasks_train_template_around_right.txt": "\n".join(short) + "\n",
        "template_split/tasks_test_template_around_right.txt": (
            "IN: run around right OUT: I_TURN_RIGHT I_RUN\n"
        ),
        "template_split/tasks_train_template_right.txt": "IN: no OUT: NO\n",
    }
    packed(home / "scan/scan.tar.xz", scan)
    forms = {
        "all/task1/german-train-high": "ab setzen\tsetzte ab\tV;PST\n",
        "all/task1/german-dev": "sagen\tsagte\tV;PST\n",
        "answers/task1/german-uncovered-test": "gehen\tging\tV;PST\n",
        "all/task1/welsh-train-high": "cath\tcathod\tN;PL\n",
        "all/task1/welsh-dev": "ci\tcŵn\tN;PL\n",
        "answers/task1/welsh-uncovered-test": "oen\tŵyn\tN;PL\n",
        "all/task1/gaelic-train-medium": "no\thigh\tN\n",
        "all/task1/gaelic-dev": "no\thigh\tN\n",
    }
    packed(home / "inflection-2017/sigmorphon2017_task1.tar.xz", forms)
    return home
