"""Constraints by hand, against Hugging Face's logits processors, and when they contradict."""

import pytest
import torch
from transformers import (
    MinLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from regard.errors import RegardError
from regard.search import Beam, Greedy, LexicalConstraints, Sampling
from regard.search.constraints import (
    NEG_INF,
    ban,
    max_length,
    min_length,
    no_repeat_ngram,
    prefix,
    repetition_penalty,
)
from tests.contracts.test_search import search_random_model
from tests.search.known_models import END, RandomModel, ragged, random_sources

VOCABULARY = 6
NAN, INF = float("nan"), float("inf")


def random_logps(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY).log_softmax(-1)


def allowed(constraint, ids: list[int]) -> list[int]:
    """The tokens that a constraint allows after a prefix; it must not change their scores."""
    scores = random_logps(1)
    after = constraint(scores.clone(), torch.tensor([ids], dtype=torch.long).reshape(1, -1))
    left = after[0] > NEG_INF
    assert torch.equal(after[0][left], scores[0][left])
    return left.nonzero()[:, 0].tolist()


def test_each_constraint_by_hand():
    assert allowed(min_length(2), [3]) == [0, 1, 3, 4, 5]
    assert allowed(min_length(2), [3, 3]) == [0, 1, 2, 3, 4, 5]
    assert allowed(max_length(2), [3]) == [0, 1, 2, 3, 4, 5]
    assert allowed(max_length(2), [3, 3]) == [END]
    assert allowed(max_length(0), []) == [END]
    assert allowed(prefix([4, 5]), []) == [4]
    assert allowed(prefix([4, 5]), [4]) == [5]
    assert allowed(prefix([4, 5]), [4, 5]) == [0, 1, 2, 3, 4, 5]
    assert allowed(ban([[3], [4, 5], [4, 4, 0]]), []) == [0, 1, 2, 4, 5]
    assert allowed(ban([[3], [4, 5], [4, 4, 0]]), [4]) == [0, 1, 2, 4]
    assert allowed(ban([[3], [4, 5], [4, 4, 0]]), [5, 4, 4]) == [1, 2, 4]
    assert allowed(no_repeat_ngram(2), [3, 4, 3]) == [0, 1, 2, 3, 5]
    assert allowed(no_repeat_ngram(1), [3, 4, 3]) == [0, 1, 2, 5]
    assert allowed(no_repeat_ngram(3), [3, 4]) == [0, 1, 2, 3, 4, 5]
    assert allowed(no_repeat_ngram(3), [3, 4, 5, 3, 4]) == [0, 1, 2, 3, 4]


def test_repetition_penalty_by_hand():
    scores = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    assert repetition_penalty(2.0)(scores, torch.tensor([[3, 1, 3]])).tolist() == [[-1, -4, -3, -8]]
    assert repetition_penalty(2.0)(scores, torch.empty(1, 0).long()).tolist() == scores.tolist()


PROCESSORS = {
    "no_repeat_ngram 1": (no_repeat_ngram(1), NoRepeatNGramLogitsProcessor(1)),
    "no_repeat_ngram 2": (no_repeat_ngram(2), NoRepeatNGramLogitsProcessor(2)),
    "no_repeat_ngram 3": (no_repeat_ngram(3), NoRepeatNGramLogitsProcessor(3)),
    "repetition_penalty 1.3": (repetition_penalty(1.3), RepetitionPenaltyLogitsProcessor(1.3)),
    "repetition_penalty 0.8": (repetition_penalty(0.8), RepetitionPenaltyLogitsProcessor(0.8)),
    "ban": (
        ban([[3], [4, 5], [0, 4, 4]]),
        NoBadWordsLogitsProcessor([[3], [4, 5], [0, 4, 4]], eos_token_id=END),
    ),
    "min_length": (min_length(5), MinLengthLogitsProcessor(5, END)),
}


@pytest.mark.parametrize(("ours", "theirs"), PROCESSORS.values(), ids=PROCESSORS)
def test_constraints_equal_hugging_face_processors(ours, theirs):
    for length in range(1, 12):
        scores = random_logps(20)
        ids = torch.randint(VOCABULARY, (20, length))
        expected = theirs(ids, scores.clone())
        torch.testing.assert_close(ours(scores, ids), expected, rtol=0, atol=1e-6)


def test_the_score_includes_the_repetition_penalty():
    model, source = RandomModel(VOCABULARY, end=-3.0), (3, 4, END)
    beam = Beam(1, constraints=(repetition_penalty(2.0),))
    (result,) = beam(model, ragged(source), torch.tensor([6]))
    (found,) = result.hypotheses
    penalised = [
        logp * (2 if token in found.ids[:at] else 1)
        for at, (token, logp) in enumerate(zip([*found.ids, END], found.logps, strict=True))
    ]
    assert found.score == pytest.approx(sum(penalised), abs=1e-5)
    assert found.score < found.logp


CONTRADICTIONS = {
    "lengths": (min_length(5), max_length(3)),
    "prefix": (prefix([3, 4]), ban([[3]])),
    "no token left": (no_repeat_ngram(1), min_length(VOCABULARY)),
    "limit": (min_length(20),),
    "long prefix": (prefix([3] * 20),),
}


@pytest.mark.parametrize("constraints", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_contradictory_constraints_are_an_error(constraints):
    arguments = RandomModel(VOCABULARY), ragged(*random_sources(5)), torch.full((5,), 8)
    for search in (Greedy(constraints), Sampling(constraints=constraints)):
        with pytest.raises(RegardError, match=r"^no output satisfies all constraints; relax one"):
            search(*arguments)
    results = Beam(3, constraints=constraints)(*arguments)
    assert [result.hypotheses for result in results] == [[]] * 5


def test_a_beam_avoids_a_dead_end():
    """After 3 no token is allowed, not even END; other hypotheses survive."""

    def dead_end(scores, ids):
        scores = scores.clone()
        if ids.shape[1]:
            scores[ids[:, -1] == 3] = NEG_INF
        return scores

    for ids in search_random_model(Beam(2, constraints=(dead_end,))):
        assert 3 not in ids


def test_a_finished_row_may_run_out_of_tokens():
    """With no_repeat_ngram(1), a finished row that waits for others has no token left."""
    search = Greedy((no_repeat_ngram(1),))
    assert search_random_model(search, end=0.0, limit=30, count=40)


@pytest.mark.parametrize("penalty", [NAN, INF, 1e39, 1e-50])
def test_a_repetition_penalty_out_of_range_is_refused(penalty: float):
    expected = f"repetition_penalty must be between 0.000001 and 1000000 (1 = off); got {penalty}"
    with pytest.raises(RegardError) as error:
        repetition_penalty(penalty)
    assert str(error.value) == expected


@pytest.mark.parametrize("constraint", [min_length, max_length])
def test_a_negative_length_is_refused(constraint):
    with pytest.raises(RegardError, match=f"^{constraint.__name__} must be at least 0; got -1$"):
        constraint(-1)


def test_constraints_at_the_edges_of_their_ranges_work():
    def outputs(*constraints) -> list[list[int]]:
        model, sources = RandomModel(VOCABULARY, end=-1.0), ragged(*random_sources(4))
        results = Greedy(constraints)(model, sources, torch.full((4,), 8))
        return [result.hypotheses[0].ids for result in results]

    for penalty in (1e-6, 1e6):
        assert len(outputs(repetition_penalty(penalty))) == 4
    assert outputs(max_length(0)) == [[]] * 4
    assert outputs(min_length(0)) == outputs()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ban([[3], []]), r"^a banned sequence is empty; remove it$"),
        (
            lambda: repetition_penalty(0.0),
            r"^repetition_penalty must be above 0 \(1 = off\); got 0.0$",
        ),
        (lambda: no_repeat_ngram(0), r"^no_repeat_ngram must be at least 1; got 0$"),
        (lambda: LexicalConstraints([[]]), r"^a required sequence has no tokens; leave it out$"),
    ],
)
def test_a_meaningless_constraint_is_refused(make, message):
    with pytest.raises(RegardError, match=message):
        make()
