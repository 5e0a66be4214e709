"""The tree of a beam search, against the search itself, the model's own pass, and every
continuation there was.
"""

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.search import Beam, LengthPenalty
from regard.teacher_forcing import next_logps
from regard.text import END
from regard.trace import BeamTree, beam_tree

WORDS = ["banana", "attention", "x"]
SEARCHES = [
    Beam(1),
    Beam(3, 2),
    Beam(4, 4, LengthPenalty(1.0)),
    Beam(8, 3, LengthPenalty(0.6, "gnmt")),
]


@pytest.fixture(scope="module", params=["spelling", "spelling-recurrent"])
def held(request):
    return regard.load(request.param)


def after(held: regard.Pipeline, made: BeamTree, number: int | None) -> torch.Tensor:
    """log p of all tokens after a node, by one pass over its whole prefix."""
    said = [] if number is None else made.ids(number)
    return next_logps(held.model, held._encode(made.source), said)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_its_answers_are_those_of_the_search(held, search):
    for word in WORDS:
        made, (found,) = beam_tree(held, word, search), held.answers([word], search)
        assert [made.ids(number) for number in made.answers] == [answer.ids for answer in found]
        assert [made.node(number).score for number in made.answers] == pytest.approx(
            [a.score for a in found]
        )


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_sums_are_sums_and_who_lost_lost_to_who_stayed(held, search):
    made = beam_tree(held, "attention", search)
    for node in made.nodes:
        before = made.nodes[node.parent] if node.parent is not None else None
        assert node.total == pytest.approx((before.total if before else 0.0) + node.logp, abs=1e-5)
        assert node.step == (before.step + 1 if before else 0)
        assert before is None or before.status == "expanded"
        assert node.score == pytest.approx(
            node.total / search.length_penalty.divisor(node.step + 1)
        )
        if node.status == "pruned":
            rival = made.nodes[node.pruned_by]
            assert (rival.step, rival.status != "pruned") == (node.step, True) or node.token == END
            assert node.margin == pytest.approx(rival.total - node.total)
            assert node.margin >= 0
        else:
            assert (node.pruned_by, node.margin) == (None, 0.0)
            assert (node.token == END) == (node.status == "finished")


def test_what_was_weighed_are_the_best_of_all_continuations(held):
    search = Beam(3, 2)
    made = beam_tree(held, "banana", search)
    for step in range(1 + max(node.step for node in made.nodes)):
        weighed = [node for node in made.nodes if node.step == step]
        parents = (
            [None]
            if step == 0
            else [n.number for n in made.nodes if (n.step, n.status) == (step - 1, "expanded")]
        )
        every = []
        for parent in parents:
            total = 0.0 if parent is None else made.nodes[parent].total
            numbers = after(held, made, parent) + total
            every += [(float(value), parent, token) for token, value in enumerate(numbers)]
        best = sorted(every, key=lambda one: -one[0])[: len(weighed)]
        assert len(weighed) == min(7, len(every))
        assert [node.total for node in weighed] == pytest.approx(
            [total for total, _, _ in best], abs=1e-4
        )
        assert {(node.parent, node.token) for node in weighed} == {
            (parent, token) for _, parent, token in best
        }
        ends = [node for i, node in enumerate(weighed) if node.token == END and i < 3]
        others = [node for node in weighed if node.token != END]
        assert [node.status for node in ends] == ["finished"] * len(ends)
        assert all(node.status in ("expanded", "stopped") for node in others[:3])
        assert all(node.status == "pruned" for node in others[3:])


def test_in_words(held):
    made = beam_tree(held, "banana", Beam(3, 2))
    best, second = made.answers
    assert " ".join(made.prefix_labels(best)[:-1]) == held("banana").text
    assert made.why(best).startswith("finished: ")
    assert made.why(best).endswith(", answer 1")
    pruned = next(node for node in made.nodes if node.status == "pruned")
    other = " ".join(made.prefix_labels(pruned.pruned_by))
    assert f"{pruned.margin:.3f} below {other}" in made.why(pruned.number)
    lines = str(made).splitlines()
    assert len(lines) == len(made.nodes)
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        made.labels[node.number] for node in made.children(None)
    ]
    assert made.path(second)[0] in {node.number for node in made.children(None)}


def test_what_has_no_tree_is_said(held):
    with pytest.raises(RegardError, match="the text is empty"):
        beam_tree(held, "  ")
    with pytest.raises(RegardError, match="cannot show a search with required words"):
        beam_tree(
            held,
            "banana",
            held.search(require=["AH0"] if "AH0" in str(held("banana").tokens) else ["AH"]),
        )
    with pytest.raises(RegardError, match="got 10000"):
        beam_tree(held, "banana").node(10_000)


def test_greedy_is_a_tree_of_one_path(held):
    made = beam_tree(held, "queue", Beam(1))
    (answer,) = made.answers
    assert made.ids(answer) == held("queue", held.search(beam=1)).ids
    assert [node.number for node in made.nodes if node.status == "expanded"] == made.path(answer)[
        :-1
    ]
