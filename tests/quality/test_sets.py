"""Data sets are read as distributed: variants grouped, held-out sources in one part only."""

import gzip
import tarfile
from pathlib import Path

import pytest
from quality_sets import READERS, Example, inflection_source, read_examples, write

from regard.errors import RegardError
from regard.text import Corpus


def test_a_dictionary_holds_out_words_with_all_variants(data: Path):
    parts = READERS["cmudict"](data)
    assert parts.tests["test"][:2] == [
        Example("READ", ["R IY D", "R EH D"]),
        Example("RED", ["R EH D"]),
    ]
    dev = {example.source for example in parts.dev}
    assert len(parts.dev) == len(dev) == 2_670
    assert dev.isdisjoint(source for source, _ in parts.train)
    assert dev | {source for source, _ in parts.train} == {f"W{i}" for i in range(2_700)}
    assert all(
        len(example.references) == 1 + (int(example.source[1:]) % 5 == 0) for example in parts.dev
    )
    assert READERS["cmudict"](data) == parts  # the same words each time


def test_short_words_are_trained_on_and_long_ones_tested(data: Path):
    parts = READERS["cmudict-short"](data)
    assert {name: [example.source for example in test] for name, test in parts.tests.items()} == {
        "1–8": ["READ", "RED"],
        "13–14": ["RECONSIDERING"],
    }
    assert parts.train == READERS["cmudict"](data).train  # W0 to W2699 are all short


@pytest.mark.parametrize("form", ["raw", "tok"])
def test_captions_are_paired_line_by_line(data: Path, form: str):
    parts = READERS[f"multi30k-en-de-{form}"](data)
    assert parts.train == [("train one .", "train eins ."), ("and two", "und zwei")]
    assert [example.references for example in parts.dev] == [["val eins ."], ["und zwei"]]
    assert {part: test[0].source for part, test in parts.tests.items()} == {
        "2016": "test_2016_flickr one .",
        "2017": "test_2017_flickr one .",
        "coco": "test_2017_mscoco one .",
    }


def test_repeated_sentences_are_tested_twice(data: Path):
    test = READERS["tatoeba-en-de"](data).tests["test"]
    assert test == [Example("Hi.", ["Hallo!"]), Example("Hi.", ["Servus!"])]


def test_counts_of_names_are_ignored(data: Path):
    parts = READERS["names-ru"](data)
    assert parts.train == [("name64", "н а м")]
    assert (parts.dev, parts.tests) == (
        [Example("name16", ["н а м"])],
        {"test": [Example("name20", ["н а м"])]},
    )


def test_scan_splits(data: Path):
    long = "I_WALK " * 26 + "I_WALK"
    for name in ("scan-length", "scan-length-26"):
        parts = READERS[name](data)
        assert parts.tests["test"] == [Example("walk long", [long], "27")]
        assert (len(parts.train), len(parts.dev)) == (21, 1)
        assert dict(parts.train).get("run twice", "I_RUN I_RUN") == "I_RUN I_RUN"
        assert parts.dev[0].source not in dict(parts.train)
    right = READERS["scan-around-right"](data)
    assert right.tests["test"] == [Example("run around right", ["I_TURN_RIGHT I_RUN"], "2")]
    assert not any("no" in source.split() for source, _ in right.train)


def test_scan_choice_sets_hold_out_distant_commands(data: Path):
    for name, far in {
        "scan-length-choice": "walk much",
        "scan-around-right-choice": "run opposite right",
    }.items():
        parts = READERS[name](data)
        assert [example.source for example in parts.dev] == [far]
        assert (len(parts.train), parts.tests) == (21, {})
        assert far not in dict(parts.train)


def test_inflection_sources_have_language_and_tags(data: Path):
    parts = READERS["inflection-2017"](data)
    assert parts.train == [
        ("<german> <V> <PST> a b ▁ s e t z e n", "setzte ab"),
        ("<welsh> <N> <PL> c a t h", "cathod"),
    ]
    assert [(example.group, example.references) for example in parts.tests["test"]] == [
        ("german", ["ging"]),
        ("welsh", ["ŵyn"]),
    ]
    assert (
        inflection_source("w\u0302y", "N;SG", "welsh") == "<welsh> <N> <SG> ŵ y"
    )  # a letter is one symbol


def test_written_parts_can_be_read_again(data: Path, tmp_path: Path):
    parts = READERS["cmudict"](data)
    write(parts, tmp_path / "parts")
    assert [
        tuple(pair) for pair in Corpus(tmp_path / "parts/train.tsv", header=False)
    ] == parts.train
    assert read_examples(tmp_path / "parts") == {"dev": parts.dev, "test test": parts.tests["test"]}


@pytest.mark.parametrize(
    ("name", "folder", "inside"),
    [
        ("scan-length", "scan", ""),
        ("scan-length-26", "scan", ""),
        ("names-ru", "name-transliteration", "data"),
        ("inflection-2017", "inflection-2017", ""),
    ],
)
def test_a_cloned_repository_equals_its_archive(
    data: Path, tmp_path: Path, name: str, folder: str, inside: str
):
    (packed,) = (data / folder).iterdir()
    with tarfile.open(packed) as archive:
        for member in archive:
            path = tmp_path / folder / inside / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(member).read())
    (tmp_path / folder / ".git").mkdir()
    (tmp_path / folder / ".git" / "index").write_bytes(b"\xff\xfe")  # not text, and not requested
    assert READERS[name](tmp_path) == READERS[name](data)


def test_unpacked_files_are_found_as_in_their_repository(data: Path, tmp_path: Path):
    for packed in (data / "multi30k" / "tok").iterdir():
        plain = tmp_path / "multi30k" / "data" / "task1" / "tok" / packed.stem
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
    assert READERS["multi30k-en-de-tok"](tmp_path) == READERS["multi30k-en-de-tok"](data)


def test_missing_data_is_reported(tmp_path: Path):
    with pytest.raises(
        RegardError,
        match=r"--data is the folder that holds cmudict-standard-split/g014b2b\.train\.gz",
    ):
        READERS["cmudict"](tmp_path)
