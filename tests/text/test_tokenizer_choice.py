"""The automatic choice of a tokenizer for known kinds of data, and its reasons."""

import random

import pytest

from regard.errors import UnknownName
from regard.text import choose_tokenizer, default_vocabulary_size, train_tokenizer
from regard.text.corpus_stats import SystematicSample, subsample
from regard.text.tokenizers import TokenizerError

PHONES = [first + second for first in "ABDEIKLMNOPRS" for second in "AHY"]


def zipf(words: list[str], lines: int, length: int, glue: str, seed: int = 0) -> list[str]:
    """Text with Zipf-distributed words: word n is 1/n as frequent as the first."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [glue.join(draw.choices(words, weights, k=length)) for _ in range(lines)]


def invented(alphabet: str, count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(alphabet, k=draw.randrange(2, 9))) for _ in range(count)]


LATIN = zipf(invented("abcdefghijklmnoprstu", 9000), 4000, 12, " ")


def test_phones():
    choice = choose_tokenizer(zipf(PHONES, 500, 6, " "))
    assert (choice.kind, choice.size) == ("words", None)
    assert (
        choice.reason
        == "words: 39 different space-separated symbols in 500 lines, so each is one token"
    )


def test_few_lines_of_phones_are_enough():
    assert choose_tokenizer(zipf(PHONES, 30, 6, " ")).kind == "words"


def test_spelled_out_characters():
    han = [chr(0x4E00 + i) for i in range(900)]
    assert choose_tokenizer(zipf(han, 300, 3, " ")).kind == "words"


def test_words_and_names():
    choice = choose_tokenizer(["ab", "abcd", "ace"])
    assert (choice.kind, choice.size) == ("characters", None)
    assert choice.reason == "characters: lines average 3.0 characters and have 5 different ones"
    assert choose_tokenizer(invented("アイウエオカキクケコ", 500)).kind == "characters"


def test_numbers_keep_their_digits():
    draw = random.Random(0)
    sums = [f"{draw.randrange(100)} + {draw.randrange(100)}" for _ in range(3000)]
    assert choose_tokenizer(sums).kind == "characters"


def test_running_text():
    choice = choose_tokenizer(LATIN)
    assert (choice.kind, choice.size) == ("bpe", 2000)
    assert choice.reason == (
        "bpe of 2,000: 4,000 lines of running text with 12.0 words per line, about 48,000 words "
        "in total"
    )


def test_sample_of_a_larger_corpus():
    choice = choose_tokenizer(LATIN, total=1_000_000)
    assert (choice.kind, choice.size) == ("bpe", 16_000)
    assert choice.reason.startswith("bpe of 16,000: 4,000 of 1,000,000 lines of running text")


@pytest.mark.parametrize(
    ("total", "size"),
    [(8_000, 2_000), (80_000, 4_000), (400_000, 8_000), (4_000_000, 16_000), (5_000_000, 32_000)],
)
def test_vocabulary_size_grows_with_the_text(total: int, size: int):
    assert choose_tokenizer(LATIN, total=total).size == size
    assert default_vocabulary_size("unigram", LATIN, total=total) == size
    assert default_vocabulary_size("characters", LATIN, total=total) is None


def test_little_running_text_uses_characters():
    choice = choose_tokenizer(LATIN[:50])
    assert choice.kind == "characters"
    assert choice.reason.endswith("; 50 lines are too little text to train subwords")


def test_text_without_spaces():
    han = [chr(0x4E00 + i) for i in range(2500)]
    chinese = zipf(han, 4000, 22, "")
    choice = choose_tokenizer(chinese)
    assert choice.kind == "bpe"
    assert choice.size is not None
    assert choice.size >= 2 * 2000  # the characters and as many subwords
    assert "without spaces between words" in choice.reason
    tokenizer = train_tokenizer(choice.kind, chinese, size=choice.size)
    assert sum(len(tokenizer.encode(line)) for line in chinese) < 1.02 * sum(map(len, chinese))


def test_japanese_and_thai_sentences():
    words = invented("一二三四五六七八九十日月火水木金土", 400) + invented(
        "がぎぐげごのはをにへとも", 200
    )
    assert choose_tokenizer(zipf(words, 3000, 7, "")).kind == "bpe"
    thai = zipf(invented("กขคงจฉชซญดตถทธนบปผพฟภมยรลวศษสหอฮาิีุูเแโใไ", 800), 3000, 9, "")
    assert choose_tokenizer(thai).kind == "bpe"
    assert "without spaces" in choose_tokenizer(thai).reason


def test_no_text_is_an_error():
    with pytest.raises(
        TokenizerError, match=r"^no text to choose a tokenizer from; give lines that are not empty$"
    ):
        choose_tokenizer(["", ""])
    with pytest.raises(UnknownName, match="unknown tokenizer 'wrods'; did you mean 'words'"):
        default_vocabulary_size("wrods", ["a"])


def test_sample_is_systematic_bounded_and_counts_all():
    sample: SystematicSample[str] = SystematicSample(len, max_characters=100, max_items=8)
    for i in range(37):
        sample.add(f"{i:02}")
    assert sample.items == ["00", "08", "16", "24", "32"]
    assert (sample.total, sample.characters) == (37, 74)
    wide: SystematicSample[str] = SystematicSample(len, max_characters=10, max_items=8)
    for i in range(5):
        wide.add(str(i) * 4)
    assert wide.items == ["0000", "4444"]
    assert subsample(iter(["a", "b"])) == ["a", "b"]
