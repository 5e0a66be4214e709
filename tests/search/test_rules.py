"""Rules by hand, against HF's logits processors, and as properties of whole searches."""

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
from tests.search.trees import END, Chance, ragged, sources

VOCABULARY = 6
SEARCHES = {
    "greedy": lambda *constraints: Greedy(constraints),
    "beam": lambda *constraints: Beam(3, n_best=2, constraints=constraints),
    "sampling": lambda *constraints: Sampling(2, constraints=constraints),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def numbers(rows: int = 7) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY).log_softmax(-1)


def allowed(rule, said: list[int]) -> list[int]:
    """The tokens that a rule leaves after some others."""
    scores = numbers(1)
    after = rule(scores.clone(), torch.tensor([said], dtype=torch.long).reshape(1, -1))
    left = after[0] > NEG_INF
    assert torch.equal(after[0][left], scores[0][left])  # and it leaves them as they were
    return left.nonzero()[:, 0].tolist()


def contains(ids, sequence) -> bool:
    return any(tuple(ids[i : i + len(sequence)]) == tuple(sequence) for i in range(len(ids)))


def answers(search, *, end: float = -1.0, limit: int = 8, count: int = 12) -> list[list[int]]:
    """All answers of a search; every number they report is the model's own."""
    model, asked = Chance(VOCABULARY, end=end), sources(count)
    found = search(model, ragged(*asked), torch.full((count,), limit))
    for source, some in zip(asked, found, strict=True):
        assert some.hypotheses
        for one in some.hypotheses:
            said = [*one.ids, END]
            own = [model.next(source)(tuple(said[:at]))[token] for at, token in enumerate(said)]
            assert one.logps == pytest.approx(own, abs=1e-5)
    return [one.ids for some in found for one in some.hypotheses]


def test_each_rule_by_hand():
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


def test_repetition_by_hand():
    scores = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    assert repetition_penalty(2.0)(scores, torch.tensor([[3, 1, 3]])).tolist() == [[-1, -4, -3, -8]]
    assert repetition_penalty(2.0)(scores, torch.empty(1, 0).long()).tolist() == scores.tolist()


THEIRS = {
    "no_repeat 1": (no_repeat_ngram(1), NoRepeatNGramLogitsProcessor(1)),
    "no_repeat 2": (no_repeat_ngram(2), NoRepeatNGramLogitsProcessor(2)),
    "no_repeat 3": (no_repeat_ngram(3), NoRepeatNGramLogitsProcessor(3)),
    "repetition 1.3": (repetition_penalty(1.3), RepetitionPenaltyLogitsProcessor(1.3)),
    "repetition 0.8": (repetition_penalty(0.8), RepetitionPenaltyLogitsProcessor(0.8)),
    "banned": (
        ban([[3], [4, 5], [0, 4, 4]]),
        NoBadWordsLogitsProcessor([[3], [4, 5], [0, 4, 4]], eos_token_id=END),
    ),
    "shortest": (min_length(5), MinLengthLogitsProcessor(5, END)),
}


@pytest.mark.parametrize(("ours", "theirs"), THEIRS.values(), ids=THEIRS)
def test_rules_are_hfs_processors(ours, theirs):
    for length in range(1, 12):
        scores = numbers(20)
        said = torch.randint(VOCABULARY, (20, length))
        torch.testing.assert_close(
            ours(scores, said), theirs(said, scores.clone()), rtol=0, atol=1e-6
        )


@every_search
def test_lengths_are_kept_to(search):
    said = answers(search(min_length(2), max_length(4)), end=1.0)
    assert {len(ids) for ids in said} == {2, 3, 4}


@every_search
def test_every_answer_begins_as_it_must(search):
    said = answers(search(prefix([5, 5, 0])))
    assert all(ids[:3] == [5, 5, 0] for ids in said)
    assert len({tuple(ids) for ids in said}) > 1


@every_search
def test_a_beginning_may_be_all(search):
    found = search(prefix([5, END]))(Chance(VOCABULARY), ragged((3, END)), torch.tensor([8]))
    assert {tuple(one.ids) for one in found[0].hypotheses} == {(5,)}


@every_search
def test_what_is_banned_is_never_said(search):
    sequences = [[3], [4, 5], [0, 0]]
    said = answers(search(ban(sequences)), limit=12)
    assert not any(contains(ids, sequence) for ids in said for sequence in sequences)
    free = answers(search(), limit=12)
    assert any(contains(ids, sequence) for ids in free for sequence in sequences)


@every_search
@pytest.mark.parametrize("count", [1, 2])
def test_nothing_is_said_twice(search, count):
    for ids in answers(search(no_repeat_ngram(count)), end=-4.0, limit=20):
        grams = [tuple(ids[i : i + count]) for i in range(len(ids) - count + 1)]
        assert len(set(grams)) == len(grams)


@every_search
def test_repetition_steers_and_reports_the_models_own_numbers(search):
    def again(said):
        return sum(len(ids) - len(set(ids)) for ids in said)

    few, many = (answers(search(repetition_penalty(penalty)), end=-3.0) for penalty in (6.0, 0.3))
    assert again(few) < again(many)


def test_a_score_is_what_the_rule_made_of_it():
    model, source = Chance(VOCABULARY, end=-3.0), (3, 4, END)
    (some,) = Beam(1, constraints=(repetition_penalty(2.0),))(
        model, ragged(source), torch.tensor([6])
    )
    (one,) = some.hypotheses
    twice = [
        number * (2 if token in one.ids[:at] else 1)
        for at, (token, number) in enumerate(zip([*one.ids, END], one.logps, strict=True))
    ]
    assert one.score == pytest.approx(sum(twice), abs=1e-5)
    assert one.score < one.logp


CONTRADICTIONS = {
    "lengths": (min_length(5), max_length(3)),
    "beginning": (prefix([3, 4]), ban([[3]])),
    "nothing left": (no_repeat_ngram(1), min_length(VOCABULARY)),
    "limit": (min_length(20),),
    "long beginning": (prefix([3] * 20),),
}


@pytest.mark.parametrize("constraints", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_rules_that_contradict_each_other_are_an_error(constraints):
    asked = Chance(VOCABULARY), ragged(*sources(5)), torch.full((5,), 8)
    for search in (Greedy(constraints), Sampling(constraints=constraints)):
        with pytest.raises(RegardError, match=r"^no output satisfies all constraints; relax one"):
            search(*asked)
    assert [some.hypotheses for some in Beam(3, constraints=constraints)(*asked)] == [[]] * 5


def test_a_beam_goes_round_a_dead_end():
    """After 3 nothing may follow, not even the end; other beginnings live."""

    def dead(scores, said):
        scores = scores.clone()
        if said.shape[1]:
            scores[said[:, -1] == 3] = NEG_INF
        return scores

    for ids in answers(Beam(2, constraints=(dead,))):
        assert 3 not in ids


def test_a_finished_row_that_may_say_nothing_more_is_no_error():
    """With no_repeat(1) a row that waits for others runs out of tokens after its end."""
    assert answers(Greedy((no_repeat_ngram(1),)), end=0.0, limit=30, count=40)


@pytest.mark.parametrize(
    ("wrong", "message"),
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
def test_a_rule_without_sense_is_refused(wrong, message):
    with pytest.raises(RegardError, match=message):
        wrong()
