"""The default task: the included dictionary and its reproducible split."""

import hashlib
import lzma
from collections import Counter
from importlib import resources

import pytest

from regard.training.cmudict import dictionary, part, unpack

PHONES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH "
    "UW V W Y Z ZH"
)
WORDS = [
    ("water", 1, "test"),
    ("dimer", 0, "test"),
    ("ever", 4, "test"),
    ("byer", 5, "dev"),
    ("gier", 6, "dev"),
    ("over", 7, "train"),
    ("hello", 20, "train"),
    ("xing", 99, "train"),
]


@pytest.fixture(scope="module")
def pairs():
    return list(dictionary())


def test_every_line_of_the_packed_file_is_a_pair(pairs):
    packed = resources.files("regard").joinpath("data/cmudict.tsv.xz").read_bytes()
    assert len(pairs) == lzma.decompress(packed).count(b"\n") > 120_000
    assert len(set(pairs)) == len(pairs)
    assert all(word and word == word.strip() for word, _ in pairs)


def test_the_phones_are_the_39_of_the_dictionary_and_no_others(pairs):
    assert {phone for _, phones in pairs for phone in phones.split(" ")} == set(PHONES.split())
    assert len(PHONES.split()) == 39


def test_well_known_words_have_their_pronunciations(pairs):
    found = {}
    for word, phones in pairs:
        found.setdefault(word, []).append(phones)
    assert found["hello"] == ["HH AH L OW", "HH EH L OW"]
    assert found["attention"] == ["AH T EH N SH AH N"]
    assert found["read"] == ["R EH D", "R IY D"]


def test_the_split_is_the_sha256_modulo_a_hundred(pairs):
    """5 of 100 to test, the next 2 to dev; the places below come from sha256sum and bc."""
    for word, place, name in WORDS:
        assert int(hashlib.sha256(word.encode()).hexdigest(), 16) % 100 == place
        assert part(word) == name


def test_the_parts_have_their_shares_and_no_word_in_common(tmp_path, pairs):
    paths = unpack(tmp_path / "dictionary")
    assert sorted(path.name for path in (tmp_path / "dictionary").iterdir()) == [
        "dev.tsv",
        "test.tsv",
        "train.tsv",
    ]
    lines = {name: path.read_text(encoding="utf-8").splitlines() for name, path in paths.items()}
    assert sorted(line for part in lines.values() for line in part) == sorted(
        "\t".join(pair) for pair in pairs
    )
    words = {name: {line.split("\t")[0] for line in part} for name, part in lines.items()}
    counts = Counter(word for part in words.values() for word in part)
    assert set(counts.values()) == {1}
    total = len(counts)
    assert {name: round(100 * len(part) / total) for name, part in words.items()} == {
        "train": 93,
        "dev": 2,
        "test": 5,
    }


def test_existing_files_are_kept(tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("mine\tM AY N\n")
    assert unpack(tmp_path)["dev"].read_text() == "mine\tM AY N\n"
