"""Decomposed characters: jamo and marks as tokens, composed outputs, spans, and the choice."""

import random
import unicodedata
from itertools import product

import pytest

from regard.errors import UnknownName
from regard.text import UNKNOWN, train_tokenizer
from regard.text.decomposition import choose_decomposition
from regard.text.input_alphabet import describe_input
from regard.text.tokenizer_training import TextForm, extend_tokenizer
from regard.training.fine_tuning import adapt_tokenizer

NFD = TextForm(decompose=True)
# By the arithmetic of the Unicode Standard, 3.12: 한 = U+D55C is syllable 10588 of the block, and
# 10588 = (18·21 + 0)·28 + 4: leading consonant 18, vowel 0 and trailing consonant 4.
HAN = "\u1112\u1161\u11ab"
GUG = "\u1100\u116e\u11a8"


def labels(tokenizer, text):
    return [piece.text for piece in tokenizer.pieces(text)]


def test_jamo_by_hand():
    tokenizer = train_tokenizer("characters", ["한국"], form=NFD)
    assert labels(tokenizer, "한국") == list(HAN + GUG)
    assert len(tokenizer) == 3 + 6
    ids = tokenizer.encode("각한")  # 각 did not occur, ㄱ, ㅏ and final ㄱ did
    assert UNKNOWN not in ids
    assert tokenizer.decode(ids) == "각한"
    assert tokenizer.decode(tokenizer.encode(HAN)) == "한"


def test_spans_of_jamo_and_marks():
    tokenizer = train_tokenizer("characters", ["한xé́"], form=NFD)
    text = f"한x{HAN}e\u0301"
    assert [(p.start, p.end) for p in tokenizer.pieces(text)] == [
        *[(0, 1)] * 3,
        (1, 2),
        *[(2, 3), (3, 4), (4, 5)],  # already decomposed: one jamo each
        *[(5, 6), (6, 7)],
    ]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == "한x한é"
    assert [(p.start, p.end) for p in tokenizer.decode_pieces(ids)] == [
        *[(0, 1)] * 3,
        (1, 2),
        *[(2, 3)] * 3,
        *[(3, 4)] * 2,
    ]


def test_marks_keep_their_order():
    # Two marks below and above are reordered canonically, two above are not.
    words = ["q\u0323\u0307", "q\u0307\u0323", "a\u0301\u0308", "a\u0308\u0301", "ệ", "ǖ", "בְּ"]
    tokenizer = train_tokenizer("characters", words, form=NFD)
    for word in words:
        assert tokenizer.decode(tokenizer.encode(word)) == unicodedata.normalize("NFC", word)
    assert tokenizer.encode(words[2]) != tokenizer.encode(words[3])
    assert tokenizer.encode(words[0]) == tokenizer.encode(words[1])


def test_generated_marks_are_composed_with_what_precedes():
    tokenizer = train_tokenizer("characters", ["é o"], form=NFD)
    by_label = {tokenizer.label(id): id for id in range(3, len(tokenizer))}
    mark, o = by_label["\u0301"], by_label["o"]
    assert tokenizer.decode([mark, o, mark, mark]) == "\u0301ó\u0301"
    spans = [(p.start, p.end) for p in tokenizer.decode_pieces([mark, o, mark])]
    assert spans == [(0, 1), (1, 2), (1, 2)]


def syllables(count, alphabet, seed=1):
    draw = random.Random(seed)
    return ["".join(draw.choices(alphabet, k=3)) for _ in range(count)]


def test_many_rare_syllables_are_decomposed():
    hangul = [chr(0xAC00 + 13 * i) for i in range(800)]
    choice = choose_decomposition(syllables(1000, hangul))
    assert choice.decompose
    assert "of 11,172 possible syllables occur" in choice.reason
    share = float(choice.reason.split(" % of")[0].split()[-1])
    lines = syllables(1000, hangul)
    others = {c: sum(c in line for line in lines) - 1 for c in hangul}
    expected = sum(any(others[c] < 5 for c in set(line)) for line in lines) / 10
    assert share == pytest.approx(expected, abs=0.051)


def test_frequent_composed_characters_stay():
    choice = choose_decomposition(syllables(1000, "aeiounsé"))
    assert not choice.decompose
    assert choice.reason.startswith("1 composed character occurs, 0.0 % of texts")
    assert choose_decomposition(["abc"] * 50).reason == ""
    assert not choose_decomposition(["各各"] * 50).decompose  # Han characters have no parts


def test_hangul_needs_fewer_rare_syllables():
    jamo = list(product(range(4), repeat=3))  # leading consonant, vowel, trailing consonant
    blocks = {one: chr(0xAC00 + (one[0] * 21 + one[1]) * 28 + one[2]) for one in jamo}
    hangul = [block for one, block in blocks.items() if sum(one) % 3 == 0]
    rare = [block for one, block in blocks.items() if sum(one) % 3]  # 4 % of the words
    assert choose_decomposition([*syllables(1000, hangul), *rare]).decompose
    letters = [*syllables(1000, "abcdéíáúń"), *"ćḱńṕŕśẃýźḿǵĺẁỳòùìèàǹ"]
    assert not choose_decomposition(letters).decompose


def test_one_of_several_languages_is_decomposed():
    hangul = syllables(100, [chr(0xAC00 + 13 * i) for i in range(800)])
    mixed = [*syllables(2_000, "abcdefgh"), *hangul]  # 5 % of the texts
    choice = choose_decomposition(mixed)
    assert choice.decompose
    assert choice.reason.split(" texts")[1].startswith(" with them have a rare one")
    assert not choose_decomposition([*syllables(2_000, "abcdefgh"), *hangul[:10]]).decompose


def test_parts_that_are_as_rare_do_not_help():
    plain = syllables(60, "abcdefgh")
    assert not choose_decomposition([*plain, *["ṉ"] * 3, *["ç"] * 3, *["å"] * 3]).decompose
    assert choose_decomposition([*plain, *["á"] * 3, *["é"] * 3, *["ć"] * 3]).decompose


def test_requested_decomposition():
    assert choose_decomposition(["abc"], "nfd") == choose_decomposition(["x"], "nfd", kind="bpe")
    hangul = syllables(100, [chr(0xAC00 + 7 * i) for i in range(900)])
    assert not choose_decomposition(hangul, "none").decompose
    assert not choose_decomposition(hangul, kind="bpe").decompose
    with pytest.raises(UnknownName, match=r"^unknown decomposition 'nfc'"):
        choose_decomposition(["a"], "nfc")


def test_fine_tuning_adds_the_parts_of_characters():
    tokenizer = train_tokenizer("characters", ["e"], form=NFD)
    adapted, reason = adapt_tokenizer(tokenizer, ["é"], "source", extend=True)
    assert labels(adapted, "é") == ["e", "\u0301"]
    assert "1 new ones are added" in reason
    assert extend_tokenizer(tokenizer, ["x"]).is_decomposed


def test_alphabet_lists_composed_characters():
    tokenizer = train_tokenizer("characters", ["né"], form=NFD)
    found = describe_input(tokenizer)["alphabet"]
    assert set(found) == set("neéńǹ"[:4])
    hangul = train_tokenizer("characters", ["한국"], form=NFD)
    assert "한" in describe_input(hangul)["alphabet"]
