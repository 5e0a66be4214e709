"""Data sets are read as distributed: every pair on its side, variants together, held-out sources in one part only."""

import gzip
import tarfile
from pathlib import Path

import pytest
from quality_sets import READERS, Question, asked_form, read_questions, write

from regard.errors import RegardError
from regard.text import Corpus


def test_a_dictionary_holds_out_whole_words_and_keeps_variants_together(data: Path):
    parts = READERS["cmudict"](data)
    assert parts.tests["test"][:2] == [Question("READ", ["R IY D", "R EH D"]), Question("RED", ["R EH D"])]
    held = {question.source for question in parts.dev}
    assert len(parts.dev) == len(held) == 2_670
    assert held.isdisjoint(source for source, _ in parts.train)
    assert held | {source for source, _ in parts.train} == {f"W{i}" for i in range(2_700)}
    assert all(len(question.right) == 1 + (int(question.source[1:]) % 5 == 0) for question in parts.dev)
    assert READERS["cmudict"](data) == parts  # the same words each time


def test_short_words_teach_and_long_ones_are_asked_by_length(data: Path):
    parts = READERS["cmudict-short"](data)
    assert {name: [question.source for question in test] for name, test in parts.tests.items()} == {
        "1–8": ["READ", "RED"],
        "13–14": ["RECONSIDERING"],
    }
    assert parts.train == READERS["cmudict"](data).train  # W0 to W2699 are all short


@pytest.mark.parametrize("form", ["raw", "tok"])
def test_captions_go_line_by_line(data: Path, form: str):
    parts = READERS[f"multi30k-en-de-{form}"](data)
    assert parts.train == [("train one .", "train eins ."), ("and two", "und zwei")]
    assert [question.right for question in parts.dev] == [["val eins ."], ["und zwei"]]
    assert {part: test[0].source for part, test in parts.tests.items()} == {
        "2016": "test_2016_flickr one .",
        "2017": "test_2017_flickr one .",
        "coco": "test_2017_mscoco one .",
    }


def test_a_sentence_that_comes_twice_is_asked_twice(data: Path):
    asked = READERS["tatoeba-en-de"](data).tests["test"]
    assert asked == [Question("Hi.", ["Hallo!"]), Question("Hi.", ["Servus!"])]


def test_names_leave_their_counts_behind(data: Path):
    parts = READERS["names-ru"](data)
    assert parts.train == [("name64", "н а м")]
    assert (parts.dev, parts.tests) == (
        [Question("name16", ["н а м"])],
        {"test": [Question("name20", ["н а м"])]},
    )


def test_commands_and_actions_by_every_split(data: Path):
    long = "I_WALK " * 26 + "I_WALK"
    for name in ("scan-length", "scan-length-26"):
        parts = READERS[name](data)
        assert parts.tests["test"] == [Question("walk long", [long], "27")]
        assert (len(parts.train), len(parts.dev)) == (21, 1)
        assert dict(parts.train).get("run twice", "I_RUN I_RUN") == "I_RUN I_RUN"
        assert parts.dev[0].source not in dict(parts.train)
    right = READERS["scan-around-right"](data)
    assert right.tests["test"] == [Question("run around right", ["I_TURN_RIGHT I_RUN"], "2")]
    assert not any("no" in source.split() for source, _ in right.train)


def test_settings_are_chosen_on_what_lies_farther_off_of_the_commands_learned_from(data: Path):
    for name, far in {"scan-length-choice": "walk much", "scan-around-right-choice": "run opposite right"}.items():
        parts = READERS[name](data)
        assert [question.source for question in parts.dev] == [far]
        assert (len(parts.train), parts.tests) == (21, {})
        assert far not in dict(parts.train)


def test_forms_carry_language_and_tags_and_only_rich_languages_count(data: Path):
    parts = READERS["inflection-2017"](data)
    assert parts.train == [
        ("<german> <V> <PST> a b ▁ s e t z e n", "setzte ab"),
        ("<welsh> <N> <PL> c a t h", "cathod"),
    ]
    assert [(question.group, question.right) for question in parts.tests["test"]] == [
        ("german", ["ging"]),
        ("welsh", ["ŵyn"]),
    ]
    assert asked_form("w\u0302y", "N;SG", "welsh") == "<welsh> <N> <SG> ŵ y"  # a letter is one symbol


def test_what_is_written_is_what_training_reads(data: Path, tmp_path: Path):
    parts = READERS["cmudict"](data)
    write(parts, tmp_path / "parts")
    assert [tuple(pair) for pair in Corpus(tmp_path / "parts/train.tsv", header=False)] == parts.train
    assert read_questions(tmp_path / "parts") == {"dev": parts.dev, "test test": parts.tests["test"]}


@pytest.mark.parametrize(
    ("name", "folder", "inside"),
    [
        ("scan-length", "scan", ""),
        ("scan-length-26", "scan", ""),
        ("names-ru", "name-transliteration", "data"),
        ("inflection-2017", "inflection-2017", ""),
    ],
)
def test_a_repository_beside_its_archive_is_the_same_set(
    data: Path, tmp_path: Path, name: str, folder: str, inside: str
):
    (packed,) = (data / folder).iterdir()
    with tarfile.open(packed) as archive:
        for member in archive:
            path = tmp_path / folder / inside / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(member).read())
    (tmp_path / folder / ".git").mkdir()
    (tmp_path / folder / ".git" / "index").write_bytes(b"\xff\xfe")  # no text, and not asked for
    assert READERS[name](tmp_path) == READERS[name](data)


def test_files_may_be_unpacked_and_lie_as_in_their_repository(data: Path, tmp_path: Path):
    for packed in (data / "multi30k" / "tok").iterdir():
        plain = tmp_path / "multi30k" / "data" / "task1" / "tok" / packed.stem
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
    assert READERS["multi30k-en-de-tok"](tmp_path) == READERS["multi30k-en-de-tok"](data)


def test_missing_data_are_named(tmp_path: Path):
    with pytest.raises(RegardError, match=r"--data is the folder that holds cmudict-standard-split/g014b2b\.train\.gz"):
        READERS["cmudict"](tmp_path)
