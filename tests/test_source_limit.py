"""Sources far beyond the trained length: rejected by name, and the rest is answered."""

import math
import warnings

import pytest

from regard.bundle import Bundle
from regard.config import TransformerSettings
from regard.errors import RegardError
from regard.models import build
from regard.pipeline import Pipeline
from regard.source_encoder import SourceEncoder, SourceTooLong, source_limit
from regard.text import train_tokenizer
from regard.text.tokenizers import Tokenizer
from tests.test_pipeline import WORDS, random_pipeline


@pytest.mark.parametrize(
    ("requested", "longest", "positions", "limit"),
    [
        (None, 28, None, 1_000),  # a short vocabulary of words: at least 1,000
        (None, 256, None, 2_560),  # ten times the longest
        (None, None, None, 5_120),  # unknown: ten times 512
        (None, 256, 511, 511),  # never beyond the learned positions
        (40, 256, None, 40),
        (0, 256, None, None),  # no limit
        (0, 256, 511, 511),
        (40, 256, 511, 40),
    ],
)
def test_the_limit_follows_the_training_data(requested, longest, positions, limit):
    assert source_limit(requested, longest, positions) == limit


def test_wrong_limits_are_refused():
    for value in (-1, 2.5, "10"):
        with pytest.raises(RegardError, match="max_source_length must be at least 0"):
            source_limit(value, None)


def limited(limit: int) -> Pipeline:
    made = random_pipeline()
    return Pipeline(made.bundle, max_source_length=limit, long="allow")


def test_rejected_sources_do_not_affect_the_others():
    t, long = limited(10), "ab" * 6
    error = f"{long!r} has 12 tokens, more than the limit of 10 tokens; shorten it, or raise "
    with pytest.warns(UserWarning, match="has 12 tokens") as caught:
        found = list(t.many(["aba", long, "", "zebra"], alignment=True))
    assert len(caught) == 1
    assert [answer.text for answer in found] == [t("aba").text, "", "", t("zebra").text]
    rejected = found[1]
    assert rejected.error == error + "max_source_length"
    assert (rejected.score, rejected.logp, rejected.alignment) == (-math.inf, -math.inf, None)
    assert [answer.error for answer in found if answer is not rejected] == [None] * 3


@pytest.mark.parametrize(
    "ask",
    [
        lambda t, text: t(text),
        lambda t, text: t.best(text, 2),
        lambda t, text: t.sample(text, 2),
        lambda t, text: list(t.stream(text)),
        lambda t, text: t.score(text, "AH"),
    ],
)
def test_single_sources_raise(ask):
    ask(limited(10), "ab" * 5)
    with pytest.raises(SourceTooLong, match="has 12 tokens, more than the limit of 10"):
        ask(limited(10), "ab" * 6)


def test_learned_positions_are_a_limit_of_their_own():
    settings = TransformerSettings(
        width=16,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        ffn_width=16,
        position={"kind": "learned", "max_length": 12},
    )
    source, target = (train_tokenizer("characters", WORDS) for _ in range(2))
    model = build(settings, len(source), len(target)).eval()
    t = Pipeline(Bundle(model, source, target, settings, {}), max_source_length=0)
    (fits,), (rejected,) = t.answers(["a" * 11, "a" * 12])
    assert fits.error is None
    assert rejected.error == "'aaaaaaaaaaaa' has 12 tokens; this model has 11 positions; shorten it"


class CountingTokenizer(Tokenizer):
    """Counts the characters that it is asked to encode."""

    def encode(self, text):
        self.characters = getattr(self, "characters", 0) + len(text)
        return super().encode(text)


def test_only_a_prefix_of_a_huge_source_is_tokenized():
    made = train_tokenizer("characters", WORDS)
    made.__class__ = CountingTokenizer
    encode = SourceEncoder(made, 8, "allow", 10)
    with pytest.raises(
        SourceTooLong, match=r"'aaa.*' has 5,000,000 characters, more than the limit"
    ):
        encode("a" * 5_000_000)
    assert made.characters <= 16 * 10


def test_a_long_word_that_is_one_token_is_accepted():
    words = train_tokenizer("words", ["a b"])
    assert len(SourceEncoder(words, 8, "allow", 10)("x" * 5_000)) == 1


def test_no_limit_only_warns():
    t = Pipeline(random_pipeline().bundle, max_source_length=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert t("ab" * 600).error is None
    assert ["more than any training source" in str(one.message) for one in caught] == [True]
