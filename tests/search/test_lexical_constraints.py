"""Lexical constraints: every output contains the required words, and the best such output wins."""

import pytest
import torch

from regard.decoding_options import DecodingOptions
from regard.search import Beam, LengthPenalty, LexicalConstraints
from regard.search.build import build_search
from regard.search.constraints import max_length
from regard.search.token_options import resolve_options
from regard.text import train_tokenizer
from tests.contracts.test_search import contains, search_random_model
from tests.search.known_models import (
    END,
    RandomModel,
    all_outputs,
    ragged,
    random_sources,
    ranked,
)

WORDS = {
    "one token": [[3]],
    "two tokens": [[3, 4]],
    "two words": [[3], [5, 0]],
    "overlapping words": [[3, 4], [4, 3]],
    "one in the other": [[3], [4, 3]],
    "a repeated token": [[3, 3]],
    "a repeated start": [[3, 3, 4]],
}
every_word = pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)


def test_a_word_may_be_spelled_differently_at_the_start():
    """[3, 6] inside a text, [4, 5] at its start: subwords contain the space before a word."""
    required = LexicalConstraints([[3, 6], [7]], [[4, 5], [8]])
    prefixes = [[], [4], [4, 5], [1, 4, 5], [4, 5, 7], [3, 6, 7], [8], [8, 3], [8, 3, 6]]
    assert [required.met(ids) for ids in prefixes] == [0, 1, 2, 0, 3, 3, 1, 2, 3]
    assert required.needed([]) == {3, 7, 4, 8}
    assert required.needed([4]) == {3, 7, 5}
    assert required.needed([4, 5]) == {7}
    assert required.needed([1]) == {3, 7}


def test_met_tokens_by_hand():
    required = LexicalConstraints([[3, 4], [5]])
    prefixes = [[], [3], [3, 4], [3, 4, 5], [5, 3], [5, 3, 0], [3, 3]]
    assert [required.met(ids) for ids in prefixes] == [0, 1, 2, 3, 2, 1, 1]
    assert required.needed([]) == {3, 5}
    assert required.needed([3]) == {3, 4, 5}
    assert required.needed([3, 4]) == {5}
    assert required.needed([5, 3, 4]) == set()
    assert LexicalConstraints([[3, 3, 4]]).met([3, 3, 3]) == 2  # the last two start it again


@every_word
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_output_contains_the_words(words, size: int):
    for ids in search_random_model(Beam(size, required=LexicalConstraints(words)), limit=7):
        assert all(contains(ids, word) for word in words)


@every_word
def test_a_wide_beam_finds_the_best_output_with_the_words(words):
    model, sources, limit = RandomModel(6, seed=3), random_sources(2), 3
    beam = Beam(
        400, n_best=4, length_penalty=LengthPenalty(1.0), required=LexicalConstraints(words)
    )
    results = beam(model, ragged(*sources), torch.full((2,), limit))
    for source, result in zip(sources, results, strict=True):
        outputs = [
            (logp, ids)
            for logp, ids in all_outputs(model.next_logps(source), limit)
            if all(contains(ids, word) for word in words)
        ]
        expected = ranked(outputs, lambda n: n)[:4]
        assert expected
        assert [tuple(each.ids) for each in result.hypotheses] == [ids for _, ids in expected]
        scores = [each.score for each in result.hypotheses]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-5)


class ReluctantModel(RandomModel):
    """Prefers 4 and 5; 3 is very unlikely, and after it END is almost certain."""

    def logits(self, source, prefix):
        logits = torch.tensor([-9.0, -9.0, -9.0, -8.0, 5.0, 4.8])
        if prefix and prefix[-1] == 3:
            logits[END] = 20.0
        return logits


@pytest.mark.parametrize("size", [2, 4])
def test_an_output_with_all_words_ends_where_the_model_ends(size: int):
    """Although hypotheses without the word stay far more likely and fill the best candidates."""
    beam = Beam(size, required=LexicalConstraints([[3]]))
    (result,) = beam(ReluctantModel(6), ragged((3, END)), torch.tensor([30]))
    assert result.hypotheses[0].ids == [3]


def test_a_hypothesis_without_room_for_the_words_is_dropped():
    beam = Beam(4, required=LexicalConstraints([[3, 4]]), constraints=(max_length(3),))
    for ids in search_random_model(beam):
        assert len(ids) <= 3
        assert contains(ids, [3, 4])


def test_words_that_do_not_fit_give_no_output():
    beam = Beam(4, required=LexicalConstraints([[3, 4]]))
    (result,) = beam(RandomModel(6), ragged((3, END)), torch.tensor([1]))
    assert result.hypotheses == []


def test_results_always_count_as_close():
    """Banks are filled by many comparisons that record no margin, so no batch is trusted."""
    beam = Beam(3, required=LexicalConstraints([[3]]))
    results = beam(RandomModel(6), ragged(*random_sources(3)), torch.full((3,), 6))
    assert [result.is_close for result in results] == [True] * 3


def test_a_required_word_may_be_the_first_word():
    target = train_tokenizer("bpe", ["The cat sat on The mat"] * 20, size=300)
    search = build_search(resolve_options(DecodingOptions(require=("The",)), target))
    assert isinstance(search, Beam)
    required = search.required
    assert required is not None
    for text in ("The cat sat", "on The mat"):
        assert required.met(target.encode(text)) == required.all
    assert required.met(target.encode("cat sat on")) < required.all
    assert build_search(resolve_options(DecodingOptions(), target)) == Beam(4)
