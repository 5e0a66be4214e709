"""The merges of a word lead to the tokens of the `tokenizers` library; scores are the model's."""

import json
import math
import random

import pytest
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from regard.text import train_tokenizer
from regard.text.segmentation import segment
from regard.text.tokenizers import Tokenizer

CORPUS = [
    "the lowest and the newest tower is lower than the widest river",
    "Die neuesten Türme sind niedriger als der breiteste Fluss",
    "newer towers, wider rivers; lower, slower, newest! 1984 and 2026",
] * 4
TEXTS = [
    *CORPUS[:3],
    "the slowest towers",
    "lowlow  wer newestest",
    "naïve café 中 🙂 — zzz",
    " leading and trailing ",
    "x",
]


def ours(tokenizer: Tokenizer, text: str) -> list[str]:
    return [token for word in segment(tokenizer, text).words for token in word.tokens]


def library_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.library.encode(text, add_special_tokens=False).tokens


def byte_level() -> Library:
    """A BPE over bytes as in GPT-2 and BART."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "<unk>"], initial_alphabet=alphabet
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def suffixed() -> Library:
    """A BPE whose last symbol of a word is marked, as in Sennrich et al. 2016."""
    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>"], end_of_word_suffix="</w>"
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def prefixed() -> Library:
    library = Library(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], continuing_subword_prefix="##"
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


LIBRARIES = {"byte-level": byte_level, "suffix": suffixed, "prefix": prefixed}


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_tokenizer("bpe", CORPUS, size=420)


def test_bpe_tokens_are_those_of_the_library(bpe: Tokenizer):
    assert segment(bpe, TEXTS[0]).method == "bpe"
    for text in TEXTS:
        assert ours(bpe, text) == library_tokens(bpe, text), text
    chance = random.Random(1)
    for _ in range(300):
        text = "".join(chance.choices("abdeilnorstwü  .1é", k=chance.randint(1, 40)))
        assert ours(bpe, text) == library_tokens(bpe, text), text


@pytest.mark.parametrize("name", LIBRARIES)
def test_foreign_bpe_tokens_are_those_of_the_library(name: str):
    tokenizer = Tokenizer(LIBRARIES[name]())
    for text in TEXTS:
        assert ours(tokenizer, text) == library_tokens(tokenizer, text), text


def test_merges_of_a_word_by_hand():
    merges = [("l", "o"), ("e", "r"), ("lo", "w"), ("w", "er"), ("o", "w")]
    names = [*"lower", "lo", "er", "low", "wer", "ow"]
    vocab = {name: id for id, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(Library(models.BPE(vocab=vocab, merges=merges)))
    (word,) = segment(tokenizer, "lower").words
    assert word.symbols == list("lower")
    # l o w e r → lo w e r (rank 0) → lo w er (rank 1) → low er (rank 2, before rank 3)
    assert [tuple(merge) for merge in word.merges] == [(0, 0, "lo"), (1, 2, "er"), (2, 0, "low")]
    assert word.tokens == ["low", "er"]
    assert word.ranks == {
        ("l", "o"): 0,
        ("o", "w"): 4,
        ("e", "r"): 1,
        ("lo", "w"): 2,
        ("w", "er"): 3,
    }


def test_the_leftmost_of_equal_pairs_is_merged_first():
    vocab = {"a": 0, "aa": 1}
    tokenizer = Tokenizer(Library(models.BPE(vocab=vocab, merges=[("a", "a")])))
    (word,) = segment(tokenizer, "aaa").words
    assert word.tokens == ["aa", "a"]
    assert [tuple(merge) for merge in word.merges] == [(0, 0, "aa")]


def test_unigram_scores_are_the_best_sum():
    tokenizer = train_tokenizer("unigram", CORPUS, size=420)
    found = segment(tokenizer, CORPUS[0])
    assert found.method == "unigram"
    assert ours(tokenizer, CORPUS[0]) == library_tokens(tokenizer, CORPUS[0])
    table = dict(json.loads(tokenizer.library.to_str())["model"]["vocab"])
    for word in found.words:
        assert word.scores == [table[token] for token in word.tokens]
        best = [0.0] + [-math.inf] * len(word.text)  # Viterbi
        for end in range(1, len(word.text) + 1):
            for start in range(end):
                if (piece := word.text[start:end]) in table:
                    best[end] = max(best[end], best[start] + table[piece])
        assert sum(word.scores) == pytest.approx(best[-1], abs=1e-6)


@pytest.mark.parametrize("kind", ["characters", "bytes", "words"])
def test_other_kinds_have_no_merges(kind: str):
    tokenizer = train_tokenizer(kind, CORPUS)
    found = segment(tokenizer, CORPUS[0])
    assert found.method == kind
    assert ours(tokenizer, CORPUS[0]) == library_tokens(tokenizer, CORPUS[0])
    assert not any(word.merges for word in found.words)
