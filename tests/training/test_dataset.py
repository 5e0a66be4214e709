"""Raw data to a dataset: tokenizers, token ids and held-out set, prepared once."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.config import TextSettings
from regard.errors import RegardError
from regard.search.search_batches import length_limits
from regard.text import Corpus
from regard.training import evaluation, tokenizer_pair
from regard.training.dataset import tokenize
from regard.training.raw_data import read
from regard.training.tokenizer_pair import choose
from tests.commands.small import pairs, written

PAIRS = pairs(80)


def prepared(home, lines=PAIRS, held=None, *, text=None, **how):
    data = home / "pairs.tsv"
    if not data.exists():
        written(data, lines)
    held_out = None if held is None else Corpus(written(home / "held.tsv", held))
    raw = read(Corpus(data, **how), held_out, text or TextSettings(), folder=home / "data")
    return tokenize(choose(raw), lambda _: None)


def sources(made) -> list[str]:
    """The sources to learn from, read back from their ids."""
    values, ends = made.pairs.gather(np.arange(len(made.pairs)))[0]
    decode = made.held_out.source.decode
    return [decode(values[a:b].tolist()) for a, b in pairwise(ends)]


def test_every_pair_is_in_training_or_held_out(tmp_path):
    made = prepared(tmp_path)
    assert sorted([*sources(made), *made.held_out.references]) == sorted(
        source for source, _ in PAIRS
    )
    assert 1 <= len(made.held_out.references) <= 20
    assert all(
        made.held_out.references[source] == [source[::-1]] for source in made.held_out.references
    )


def test_all_references_of_a_source_stay_together(tmp_path):
    both = [*PAIRS, *((source, source) for source, _ in PAIRS)]
    made = prepared(tmp_path, both)
    assert not set(sources(made)) & set(made.held_out.references)
    assert all(
        set(right) == {source, source[::-1]} for source, right in made.held_out.references.items()
    )


def test_a_given_held_out_file_is_used_as_it_is(tmp_path):
    made = prepared(tmp_path, PAIRS[:70], PAIRS[70:])
    assert sources(made) == [source for source, _ in PAIRS[:70]]
    assert list(made.held_out.references) == [source for source, _ in PAIRS[70:]]


def test_overlap_with_the_training_data_is_reported(tmp_path):
    (tmp_path / "one").mkdir()
    held = [(PAIRS[3][0], "another answer"), ("never seen", "x"), *[PAIRS[5]] * 2]
    printed = "warning: 2 of 3 held-out sources also occur in the training data; they partly "
    printed += "measure memorisation"
    assert printed in prepared(tmp_path / "one", held=held).decisions
    assert printed in prepared(tmp_path / "one", held=held).decisions  # on resume, too
    assert "also occur in the training data" not in " ".join(
        prepared(tmp_path, held=[("never seen", "x")]).decisions
    )


def test_long_held_out_sources_are_skipped_and_reported(tmp_path):
    made = prepared(
        tmp_path, PAIRS, [("abcd", "dcba"), ("a" * 60, "b")], text=TextSettings(max_tokens=50)
    )
    assert list(made.held_out.references) == ["abcd"]
    assert (
        "1 held-out sources with more than 50 tokens are skipped (text.max_tokens)"
        in made.decisions
    )
    (tmp_path / "other").mkdir()
    with pytest.raises(
        RegardError, match=r"all held-out sources are longer than text\.max_tokens = 50"
    ):
        prepared(tmp_path / "other", PAIRS, [("a" * 60, "b")], text=TextSettings(max_tokens=50))


def test_long_pairs_do_not_affect_length_limits(tmp_path):
    made = prepared(
        tmp_path, [*PAIRS[:70], ("a" * 60, "b")], PAIRS[70:], text=TextSettings(max_tokens=50)
    )
    assert [len(lengths) for lengths in made.lengths] == [70, 70]
    assert made.lengths[0].max() == max(len(source) for source, _ in PAIRS[:70])
    assert made.held_out.max_length == 2 * max(len(target) for _, target in PAIRS[:70]) + 10


@pytest.mark.parametrize("place", ["ids/mine.txt", "notes.txt"])
def test_foreign_files_are_not_overwritten(tmp_path, place):
    mine = tmp_path / "data" / place
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    with pytest.raises(RegardError, match="belongs to no run and would be lost; use another --out"):
        prepared(tmp_path)
    assert mine.read_text() == "precious"
    assert [path.name for path in (tmp_path / "data").iterdir()] == [place.split("/")[0]]


def test_a_damaged_state_file_is_an_error(tmp_path):
    prepared(tmp_path)
    (tmp_path / "data/prepared.json").write_text("{")
    with pytest.raises(RegardError, match="is damaged or was written by another version of Regard"):
        prepared(tmp_path)


def test_tokenizers_are_trained_on_shortened_lines(tmp_path, monkeypatch):
    seen = []
    train_tokenizer = tokenizer_pair.train_tokenizer
    monkeypatch.setattr(
        tokenizer_pair,
        "train_tokenizer",
        lambda kind, lines, **k: seen.extend(lines) or train_tokenizer(kind, lines, **k),
    )
    prepared(tmp_path, [*PAIRS, ("a" * 300_000, "b")])
    assert max(map(len, seen)) <= tokenizer_pair.MAX_CHARACTERS


@pytest.mark.parametrize("sides", [("source",), ("target",), ("source", "target")])
def test_a_shared_vocabulary_is_of_the_requested_kind(tmp_path, sides):
    requested = {f"{side}_tokenizer": "words" for side in sides}
    made = prepared(tmp_path, text=TextSettings(shared_vocabulary=True, **requested))
    assert made.held_out.source is made.held_out.target
    assert made.held_out.source.kind == "words"
    assert "tokenizer of both sides: words: as requested" in made.decisions


def test_a_shared_vocabulary_of_two_kinds_is_refused(tmp_path):
    with pytest.raises(
        RegardError,
        match=(
            r"source_tokenizer is words and text\.target_tokenizer is characters; "
            r"make them equal"
        ),
    ):
        prepared(
            tmp_path,
            text=TextSettings(
                source_tokenizer="words", target_tokenizer="characters", shared_vocabulary=True
            ),
        )
    assert not (tmp_path / "data").exists()
    made = prepared(tmp_path, text=TextSettings(shared_vocabulary=True))
    assert made.held_out.source is made.held_out.target


def test_held_out_sources_are_sampled_evenly_and_kept(tmp_path):
    held = [(f"{i:03}", "x") for i in range(90)]
    corpus, asked = (
        Corpus(written(tmp_path / "pairs.tsv", PAIRS)),
        Corpus(written(tmp_path / "held.tsv", held)),
    )

    def questions(most: int) -> list[int]:
        raw = read(corpus, asked, TextSettings(), folder=tmp_path / "data", max_held_out=most)
        made = tokenize(choose(raw), lambda _: None)
        return [int(source) for source in made.held_out.references]

    found = questions(40)
    assert len(found) == 40
    assert (found[0], found[-1]) == (0, 87)
    assert set(np.diff(found)) == {2, 3}
    assert questions(90) == found  # a resumed run keeps the settings it began with


def test_a_second_call_opens_prepared_data(tmp_path):
    first = prepared(tmp_path)
    times = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*") if path.is_file()
    }
    second = prepared(tmp_path)
    assert times == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*") if path.is_file()
    }
    assert (sources(second), second.held_out.references) == (
        sources(first),
        first.held_out.references,
    )
    assert second.decisions == first.decisions


def test_tokenizer_choices_are_reported_with_reasons(tmp_path):
    made = prepared(tmp_path, text=TextSettings(target_tokenizer="bytes"))
    source, target = (line for line in made.decisions if " tokenizer: " in line)
    assert source.startswith("source tokenizer: characters: lines average ")
    assert target == "target tokenizer: bytes: as requested"


def test_long_pairs_are_skipped_and_reported(tmp_path):
    long = [("a" * 30, "b"), ("b", "a" * 31)]
    made = prepared(tmp_path, PAIRS, [("x", "y")], text=TextSettings(max_tokens=29))
    assert not [line for line in made.decisions if "more than 29" in line]
    home = tmp_path / "long"
    home.mkdir()
    made = prepared(home, [*PAIRS, *long], PAIRS[:5], text=TextSettings(max_tokens=29))
    assert (
        "2 pairs with more than 29 tokens on a side are skipped (text.max_tokens)" in made.decisions
    )


def test_max_tokens_can_be_raised_if_all_pairs_are_too_long(tmp_path):
    with pytest.raises(
        RegardError, match=r"^all \d+ pairs are longer than text\.max_tokens = 1 tokens; raise it$"
    ):
        prepared(tmp_path, text=TextSettings(max_tokens=1))
    assert len(prepared(tmp_path, text=TextSettings(max_tokens=9)).pairs) > 50


def test_skipped_bad_lines_are_reported(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS) + "alone\n")
    made = prepared(tmp_path, bad_lines="skip")
    printed = f"skipped 1 bad line: 1 missing column (first at {tmp_path / 'pairs.tsv'}:81)"
    assert printed in made.decisions


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        (
            {"text": TextSettings(split_seed=2)},
            "the data were prepared with other settings: text.split_seed was 1 and is 2",
        ),
        (
            {"text": TextSettings(source_tokenizer="bytes")},
            "the data were prepared with other settings: text.source_tokenizer was 'auto' and is",
        ),
        ({"source": 2, "target": 1}, "the data changed since this run began: 'reading'"),
        ({"held": PAIRS[:3]}, "the data changed since this run began: 'held out: "),
    ],
)
def test_changed_data_or_text_settings_are_refused(tmp_path, change, printed):
    prepared(tmp_path)
    with pytest.raises(RegardError) as refused:
        prepared(tmp_path, **change)
    assert str(refused.value).startswith(printed)


def test_swapped_columns_are_refused_with_a_held_out_file(tmp_path):
    prepared(tmp_path, PAIRS[:70], PAIRS[70:])
    with pytest.raises(
        RegardError, match="the data changed since this run began: 'reading'; use the old data"
    ):
        prepared(tmp_path, PAIRS[:70], PAIRS[70:], source=2, target=1)


def test_an_interrupted_preparation_starts_again(tmp_path):
    prepared(tmp_path)
    (tmp_path / "data/prepared.json").unlink()
    made = prepared(tmp_path, text=TextSettings(source_tokenizer="words", split_seed=5))
    assert made.held_out.source.kind == "words"
    settings = json.loads((tmp_path / "data/prepared.json").read_text())["settings"]
    assert settings["text.split_seed"] == 5


def test_an_unknown_tokenizer_is_refused_before_writing(tmp_path):
    with pytest.raises(RegardError, match="unknown tokenizer 'byte'; did you mean 'bytes'"):
        prepared(tmp_path, text=TextSettings(target_tokenizer="byte"))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001, 1_002, 3_000])
def test_the_length_ratio_is_a_percentile(count, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK_PAIRS", 700)
    draw = np.random.default_rng(count)
    sources = draw.integers(1, 30, count).astype(np.int32)
    targets = (sources * draw.uniform(3, 12, count)).astype(np.int32)
    needed = (targets - evaluation.EXTRA) / (sources + 1)
    expected = np.clip(np.percentile(needed, 99.9, method="higher"), evaluation.RATIO, 16)
    assert evaluation.length_ratio(sources, targets) == expected


def test_outputs_may_be_as_long_as_training_targets(tmp_path):
    """Two letters that mean sixty: twice the source and some would cut the answer."""
    lines = [("ab" * (1 + i % 4), "x" * (59 + i % 2) + "y" * (i % 3)) for i in range(60)]
    data = prepared(
        tmp_path,
        lines,
        text=TextSettings(source_tokenizer="characters", target_tokenizer="characters"),
    )
    assert data.held_out.ratio == pytest.approx((61 - 20) / 3)  # "ab" and its end
    assert (
        int(length_limits(torch.tensor([3]), data.held_out.max_length, data.held_out.ratio)[0])
        == 61
    )
    assert int(length_limits(torch.tensor([3]))[0]) == 26  # without having seen them
