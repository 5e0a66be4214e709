"""Tables with a column of tags: word, form and features, in the orders of shared tasks."""

import random
from pathlib import Path

import pytest

from regard.text import Corpus
from regard.text.files import CorpusError
from tests.text.rule_data import names

FEATURES = ["N;NOM;SG", "N;GEN;PL", "V;PST;3", "V;PRS;1;SG"]


def write(path: Path, order: str, *, header: str = "", count: int = 60) -> list[tuple[str, str]]:
    """Write a table with columns in this order; returns the pairs that are expected."""
    draw = random.Random(1)
    rows, pairs = [], []
    for word in names(count):
        tags = draw.choice(FEATURES)
        cells = {"w": word, "f": f"{word}n", "t": tags}
        rows.append("\t".join(cells[column] for column in order))
        pairs.append((f"{word} {tags}", f"{word}n"))
    path.write_text("\n".join([header, *rows] if header else rows) + "\n", encoding="utf-8")
    return pairs


@pytest.mark.parametrize("order", ["wft", "wtf"])
@pytest.mark.parametrize("header", ["", "word\tx\ty"])
def test_a_column_of_features_is_part_of_the_source(order: str, header: str, tmp_path: Path):
    path = tmp_path / "pairs.tsv"
    pairs = write(path, order, header=header)
    corpus = Corpus(path, header=bool(header))
    assert [(pair.source, pair.target) for pair in corpus] == pairs
    tags = order.index("t") + 1
    assert f"source is column 1 with the tags of column {tags} and target" in corpus.decisions[0]


def test_a_space_in_a_bundle_of_tags_is_removed(tmp_path: Path):
    path = tmp_path / "pairs.tsv"
    pairs = write(path, "wft", count=100)
    lines = path.read_text().splitlines()
    spaced = next(i for i, line in enumerate(lines) if line.endswith("N;GEN;PL"))
    lines[spaced] = lines[spaced].replace(";PL", "; PL")
    path.write_text("\n".join(lines) + "\n")
    assert [(pair.source, pair.target) for pair in Corpus(path)] == pairs
    path.write_text("\n".join(line.replace(";", "; ") for line in lines) + "\n")
    with pytest.raises(CorpusError, match="has 3 columns"):
        Corpus(path)


def test_columns_on_request(tmp_path: Path):
    path = tmp_path / "pairs.tsv"
    pairs = write(path, "wft", header="lemma\tform\ttags")
    for source, target in (("1+3", "2"), ("lemma+tags", "form")):
        corpus = Corpus(path, source=source, target=target, header=True)
        assert [(pair.source, pair.target) for pair in corpus] == pairs
    plain = Corpus(path, source="1", target="2", header=True)
    assert next(iter(plain)).source == pairs[0][0].split()[0]
    with pytest.raises(CorpusError, match=r"there is no column 4 \(counted from 1\)$"):
        Corpus(path, source="1+4", target="2")


def test_other_third_columns_are_still_asked_for(tmp_path: Path):
    path = tmp_path / "pairs.tsv"
    draw = random.Random(2)
    lines = [f"{word}\t{word}n\t{draw.random():.3f}" for word in names(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"has 3 columns: .* which are source and target"):
        Corpus(path)
    path.write_text("".join(f"{word}\t{word}n\tsee; also {word}\n" for word in names(60)))
    with pytest.raises(CorpusError, match="has 3 columns"):
        Corpus(path)


def test_missing_cells_are_bad_lines(tmp_path: Path):
    path = tmp_path / "pairs.tsv"
    write(path, "wft")
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "ana\tanan\n\tanan\tN;NOM;SG\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"2 columns only, but the source is column 3"):
        list(Corpus(path))
    found = list(Corpus(path, bad_lines="skip"))
    assert len(found) == 60
