"""The tree of a beam search, against the search itself and all continuations."""

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
def pipeline(request):
    return regard.load(request.param)


def after(pipeline: regard.Pipeline, tree: BeamTree, number: int | None) -> torch.Tensor:
    """log p of all tokens after a node, by one pass over its whole prefix."""
    prefix = [] if number is None else tree.ids(number)
    return next_logps(pipeline.model, pipeline._encode(tree.source), prefix)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_answers_are_those_of_the_search(pipeline, search):
    for word in WORDS:
        tree, (found,) = beam_tree(pipeline, word, search), pipeline.answers([word], search)
        assert [tree.ids(number) for number in tree.answers] == [answer.ids for answer in found]
        assert [tree.node(number).score for number in tree.answers] == pytest.approx(
            [a.score for a in found]
        )


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_totals_are_sums_and_pruned_nodes_have_a_rival(pipeline, search):
    tree = beam_tree(pipeline, "attention", search)
    for node in tree.nodes:
        before = tree.nodes[node.parent] if node.parent is not None else None
        assert node.total == pytest.approx((before.total if before else 0.0) + node.logp, abs=1e-5)
        assert node.step == (before.step + 1 if before else 0)
        assert before is None or before.status == "expanded"
        assert node.score == pytest.approx(
            node.total / search.length_penalty.divisor(node.step + 1)
        )
        if node.status == "pruned":
            rival = tree.nodes[node.pruned_by]
            assert (rival.step, rival.status != "pruned") == (node.step, True) or node.token == END
            assert node.margin == pytest.approx(rival.total - node.total)
            assert node.margin >= 0
        else:
            assert (node.pruned_by, node.margin) == (None, 0.0)
            assert (node.token == END) == (node.status == "finished")


def test_candidates_are_the_best_of_all_continuations(pipeline):
    search = Beam(3, 2)
    tree = beam_tree(pipeline, "banana", search)
    for step in range(1 + max(node.step for node in tree.nodes)):
        candidates = [node for node in tree.nodes if node.step == step]
        parents = (
            [None]
            if step == 0
            else [n.number for n in tree.nodes if (n.step, n.status) == (step - 1, "expanded")]
        )
        every = []
        for parent in parents:
            total = 0.0 if parent is None else tree.nodes[parent].total
            numbers = after(pipeline, tree, parent) + total
            every += [(float(value), parent, token) for token, value in enumerate(numbers)]
        best = sorted(every, key=lambda one: -one[0])[: len(candidates)]
        assert len(candidates) == min(7, len(every))
        assert [node.total for node in candidates] == pytest.approx(
            [total for total, _, _ in best], abs=1e-4
        )
        assert {(node.parent, node.token) for node in candidates} == {
            (parent, token) for _, parent, token in best
        }
        ends = [node for i, node in enumerate(candidates) if node.token == END and i < 3]
        others = [node for node in candidates if node.token != END]
        assert [node.status for node in ends] == ["finished"] * len(ends)
        assert all(node.status in ("expanded", "stopped") for node in others[:3])
        assert all(node.status == "pruned" for node in others[3:])


def test_descriptions_in_words(pipeline):
    tree = beam_tree(pipeline, "banana", Beam(3, 2))
    best, second = tree.answers
    assert " ".join(tree.prefix_labels(best)[:-1]) == pipeline("banana").text
    assert tree.why(best).startswith("finished: ")
    assert tree.why(best).endswith(", answer 1")
    pruned = next(node for node in tree.nodes if node.status == "pruned")
    other = " ".join(tree.prefix_labels(pruned.pruned_by))
    assert f"{pruned.margin:.3f} below {other}" in tree.why(pruned.number)
    lines = str(tree).splitlines()
    assert len(lines) == len(tree.nodes)
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        tree.labels[node.number] for node in tree.children(None)
    ]
    assert tree.path(second)[0] in {node.number for node in tree.children(None)}


def test_unsupported_searches_are_refused(pipeline):
    with pytest.raises(RegardError, match="the text is empty"):
        beam_tree(pipeline, "  ")
    with pytest.raises(RegardError, match="cannot show a search with required words"):
        beam_tree(
            pipeline,
            "banana",
            pipeline.search(require=["AH0"] if "AH0" in str(pipeline("banana").tokens) else ["AH"]),
        )
    with pytest.raises(RegardError, match="got 10000"):
        beam_tree(pipeline, "banana").node(10_000)


def test_greedy_is_a_tree_of_one_path(pipeline):
    tree = beam_tree(pipeline, "queue", Beam(1))
    (answer,) = tree.answers
    assert tree.ids(answer) == pipeline("queue", pipeline.search(beam=1)).ids
    assert [node.number for node in tree.nodes if node.status == "expanded"] == tree.path(answer)[
        :-1
    ]
