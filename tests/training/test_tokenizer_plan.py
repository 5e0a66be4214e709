"""Decisions on tokenizers in a run: decomposition, tags, and what is reported and stored."""

import json
import random

import pytest

from regard.config import TextSettings, parse
from regard.errors import RegardError
from regard.training.checkpoint import read_state, write_state
from regard.training.raw_data import STATE_FILE, STATE_KEYS
from tests.text.rule_data import names
from tests.training.test_dataset import prepared

SYLLABLES = [chr(0xAC00 + 13 * i) for i in range(800)]
BUNDLES = ["N;NOM;SG", "N;GEN;PL", "V;PST;3", "V;PRS;1;SG"]


def korean(count: int = 300, *, copy: bool = False) -> list[tuple[str, str]]:
    """Words of Hangul with their length in strokes, or with themselves."""
    draw = random.Random(1)
    words = {"".join(draw.choices(SYLLABLES, k=3)) for _ in range(count)}
    return [(word, word if copy else "x" * (1 + ord(word[0]) % 5)) for word in sorted(words)]


def test_decomposition_is_reported_and_stored(tmp_path):
    made = prepared(tmp_path, korean())
    (found,) = [line for line in made.decisions if "decomposed" in line]
    assert found.startswith("source characters decomposed: ")
    assert found.endswith(" jamo")
    assert "of 11,172 possible syllables occur" in found
    stored = json.loads((tmp_path / "data" / "source.tokenizer.json").read_text())
    assert stored["normalizer"]["type"] == "NFD"
    assert made.held_out.source.is_decomposed
    assert not made.held_out.target.is_decomposed
    assert made.pairs.counts["source"]["unknown"] == 0
    unseen = [one for one in map(chr, range(0xAC00, 0xD7A4)) if one not in SYLLABLES]
    known = sum(not made.held_out.source.unknown_symbols(one) for one in unseen[::50])
    assert known > 0.9 * len(unseen[::50])


def test_sides_with_the_same_characters_agree(tmp_path):
    draw = random.Random(2)
    plain = ["".join(draw.choices("abcdeiou", k=5)) for _ in range(100)]
    pairs = [(f"{word}é", f"{word}{draw.choice('áéíóúć')}") for word in plain]
    pairs += [(f"{one}{end}", one) for one in "áíóúć" for end in ("bc", "cb", "dd")]
    made = prepared(tmp_path, pairs)
    sides = made.held_out.source, made.held_out.target
    assert [side.is_decomposed for side in sides] == [True, True]
    assert "target characters decomposed: as the other side; 6 composed" in str(made.decisions)


def test_settings_override_the_choice(tmp_path):
    for name, settings, expected in (
        ("none", {"source_decomposition": "none"}, [False, False]),
        ("nfd", {"target_decomposition": "nfd"}, [True, True]),
    ):
        (tmp_path / name).mkdir()
        made = prepared(tmp_path / name, korean(), text=TextSettings(**settings))
        sides = made.held_out.source, made.held_out.target
        assert [side.is_decomposed for side in sides] == expected
    with pytest.raises(RegardError, match=r"^text.source_decomposition: .*'auto', 'none' or 'nfd'"):
        parse(TextSettings, {"source_decomposition": "nfkd"}, "text")


def test_word_form_and_features(tmp_path):
    draw = random.Random(3)
    data = tmp_path / "pairs.tsv"
    rows = [f"{word}\t{word}n\t{draw.choice(BUNDLES)}\n" for word in names(400)]
    data.write_text("".join(rows))
    made = prepared(tmp_path)
    (found,) = [line for line in made.decisions if line.startswith("source tags: ")]
    assert found.startswith("source tags: 10 tags at the end of each text, one token each: ")
    source = made.held_out.source
    assert source.kind == made.held_out.target.kind == "characters"
    assert [piece.text for piece in source.pieces("na V;PST;3")] == ["n", "a", " V", ";PST", ";3"]
    off = TextSettings(source_tags="none")
    (tmp_path / "off").mkdir()
    (tmp_path / "off" / "pairs.tsv").write_text("".join(rows))
    plain = prepared(tmp_path / "off", text=off).held_out.source
    assert ";PST" not in [piece.text for piece in plain.pieces("na V;PST;3")]


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_a_shared_vocabulary_has_the_tags_of_both_sides(tmp_path, kind):
    pairs = [(f"2{code} {word}", word) for word in names(150) for code in ("de", "fr")]
    kinds = {"source_tokenizer": kind, "target_tokenizer": kind}
    shared = {"shared_vocabulary": True} if kind == "characters" else {"vocabulary_size": 300}
    made = prepared(tmp_path, pairs, text=TextSettings(**kinds, **shared))
    assert "one vocabulary for both sides" in made.decisions
    assert made.held_out.source is made.held_out.target
    pieces = [piece.text for piece in made.held_out.source.pieces("2fr na")]
    assert pieces[0] == "2fr"


def test_a_run_of_an_older_version_resumes(tmp_path):
    prepared(tmp_path)
    path = tmp_path / "data" / STATE_FILE
    state = read_state(path, STATE_KEYS)
    assert state is not None
    older = {name: value for name, value in state["settings"].items() if "_tags" not in name}
    write_state(path, {**state, "settings": older})
    assert prepared(tmp_path).decisions
