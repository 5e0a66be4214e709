"""Required words: every answer has them, and a beam as wide as the tree finds the best of those
that do.
"""

import pytest
import torch

from regard.search import Beam, LengthPenalty, LexicalConstraints
from regard.search.constraint_parsing import parse_required
from regard.search.constraints import max_length
from regard.text import train_tokenizer
from tests.search.test_rules import answers, contains
from tests.search.trees import END, Chance, ragged, ranked, sentences, sources

WORDS = {
    "one token": [[3]],
    "two tokens": [[3, 4]],
    "two words": [[3], [5, 0]],
    "words that overlap": [[3, 4], [4, 3]],
    "one in the other": [[3], [4, 3]],
    "twice the same": [[3, 3]],
    "a start that is seen twice": [[3, 3, 4]],
}
every_word = pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)


def test_a_word_may_be_the_first_that_is_said():
    """[3, 6] inside a text, [4, 5] at its start: subwords carry the space before a word."""
    required = LexicalConstraints([[3, 6], [7]], [[4, 5], [8]])
    said = [[], [4], [4, 5], [1, 4, 5], [4, 5, 7], [3, 6, 7], [8], [8, 3], [8, 3, 6]]
    assert [required.met(ids) for ids in said] == [0, 1, 2, 0, 3, 3, 1, 2, 3]
    assert required.needed([]) == {3, 7, 4, 8}
    assert required.needed([4]) == {3, 7, 5}
    assert required.needed([4, 5]) == {7}
    assert required.needed([1]) == {3, 7}


def test_what_was_met_by_hand():
    required = LexicalConstraints([[3, 4], [5]])
    assert [
        required.met(ids) for ids in ([], [3], [3, 4], [3, 4, 5], [5, 3], [5, 3, 0], [3, 3])
    ] == [
        0,
        1,
        2,
        3,
        2,
        1,
        1,
    ]
    assert required.needed([]) == {3, 5}
    assert required.needed([3]) == {3, 4, 5}
    assert required.needed([3, 4]) == {5}
    assert required.needed([5, 3, 4]) == set()
    assert LexicalConstraints([[3, 3, 4]]).met([3, 3, 3]) == 2  # the start is found again


@every_word
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_answer_contains_them(words, size):
    for ids in answers(Beam(size, required=LexicalConstraints(words)), limit=7):
        assert all(contains(ids, word) for word in words)


@every_word
@pytest.mark.parametrize("alpha", [1.0])
def test_a_beam_as_wide_as_the_tree_finds_the_best_that_contains_them(words, alpha):
    model, asked, limit = Chance(6, seed=3), sources(2), 3
    found = Beam(
        400, n_best=4, length_penalty=LengthPenalty(alpha), required=LexicalConstraints(words)
    )(model, ragged(*asked), torch.full((2,), limit))
    for source, some in zip(asked, found, strict=True):
        every = (
            pair
            for pair in sentences(model.next(source), limit)
            if all(contains(pair[1], w) for w in words)
        )
        expected = ranked(every, lambda n: n**alpha)[:4]
        assert expected
        assert [tuple(one.ids) for one in some.hypotheses] == [said for _, said in expected]
        assert [one.score for one in some.hypotheses] == pytest.approx(
            [score for score, _ in expected], abs=1e-5
        )


class Reluctant(Chance):
    """Likes to say 4 and 5 for ever; 3 is very unlikely, and after it the end is near certain."""

    def logits(self, source, said):
        logits = torch.tensor([-9.0, -9.0, -9.0, -8.0, 5.0, 4.8])
        if said and said[-1] == 3:
            logits[END] = 20.0
        return logits


@pytest.mark.parametrize("size", [2, 4])
def test_an_answer_that_has_said_all_ends_where_the_model_would_end_it(size):
    """Though beginnings that lack the word stay far likelier, so that they fill the beam's best
    candidates.
    """
    (some,) = Beam(size, required=LexicalConstraints([[3]]))(
        Reluctant(6), ragged((3, END)), torch.tensor([30])
    )
    assert some.hypotheses[0].ids == [3]


def test_a_beginning_that_can_no_longer_say_them_does_not_stop_the_others():
    for ids in answers(
        Beam(4, required=LexicalConstraints([[3, 4]]), constraints=(max_length(3),))
    ):
        assert len(ids) <= 3
        assert contains(ids, [3, 4])


def test_where_they_do_not_fit_there_is_no_answer():
    (some,) = Beam(4, required=LexicalConstraints([[3, 4]]))(
        Chance(6), ragged((3, END)), torch.tensor([1])
    )
    assert some.hypotheses == []


def test_they_are_searched_alone():
    """Banks are filled by comparing many numbers; no margin is kept of that, so no batch is
    trusted.
    """
    for some in Beam(3, required=LexicalConstraints([[3]]))(
        Chance(6), ragged(*sources(3)), torch.full((3,), 6)
    ):
        assert some.is_close


def test_a_required_word_is_there_when_it_stands_first():
    target = train_tokenizer("bpe", ["The cat sat on The mat"] * 20, size=300)
    required = parse_required(target, ["The"])
    assert required is not None
    for text in ("The cat sat", "on The mat"):
        assert required.met(target.encode(text)) == required.all
    assert required.met(target.encode("cat sat on")) < required.all
    assert parse_required(target, []) is None
