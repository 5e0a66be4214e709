"""Cosines, neighbours and analogies, by hand and against SciPy and scikit-learn."""

import pytest
import torch
from scipy.spatial import distance
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import NearestNeighbors

from regard.errors import RegardError, ShapeError, UnknownName
from regard.vectors import Vectors, cosine, pca_plane, similarities, unit

ROYAL = {
    "king": [0.9, 0.8, 0.7, 0.1, 0.2],
    "queen": [0.9, 0.8, 0.7, 0.1, 0.7],
    "man": [0.8, 0.6, 0.6, 0.2, 0.1],
    "woman": [0.8, 0.6, 0.6, 0.2, 0.6],
}


@pytest.fixture
def royal() -> Vectors:
    return Vectors(list(ROYAL), torch.tensor(list(ROYAL.values())))


def compass(**extra: list[float]) -> Vectors:
    points = {
        "east": [2.0, 0.0],
        "north": [0.0, 3.0],
        "northeast": [5.0, 5.0],
        "west": [-1.0, 0.0],
        **extra,
    }
    return Vectors(list(points), torch.tensor(list(points.values())))


def random_vectors(words: int = 50, dim: int = 7) -> Vectors:
    return Vectors(
        [f"word{i}" for i in range(words)], torch.randn(words, dim, generator=torch.manual_seed(0))
    )


@pytest.mark.parametrize(
    ("a", "b", "truth"),
    [("king", "queen", 0.9485), ("man", "woman", 0.9268), ("king", "man", 0.9910)],
)
def test_cosines_by_hand(royal, a, b, truth):
    assert round(royal.cosine(a, b), 4) == truth
    assert royal.cosine(a, b) == pytest.approx(1 - distance.cosine(ROYAL[a], ROYAL[b]), abs=1e-7)


def test_cosine_accepts_words_and_vectors():
    vectors = compass()
    assert vectors.cosine("east", torch.tensor([0.0, 9.0])) == 0
    assert vectors.cosine(torch.tensor([1.0, 1.0]), "northeast") == pytest.approx(1)
    assert vectors.cosine("east", "west") == -1


def test_cosine_of_tensors_broadcasts_and_agrees_with_scipy():
    a, b = torch.randn(2, 1, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    table = cosine(a, b)
    assert table.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            assert table[i, j].item() == pytest.approx(
                1 - distance.cosine(a[i, 0], b[j]), abs=1e-12
            )


def test_cosine_of_tiny_and_huge_vectors():
    large, small = torch.tensor([3e30, 4e30]), torch.tensor([4e-30, 3e-30])
    assert cosine(large, small).item() == pytest.approx(0.96)
    vectors = Vectors(
        ["large", "small", "plain"], torch.stack([large, small, torch.tensor([1.0, 0.0])])
    )
    assert [(word, round(score, 6)) for word, score in vectors.neighbours("plain")] == [
        ("small", 0.8),
        ("large", 0.6),
    ]


def test_similarities_agree_with_scikit_learn():
    a, b = torch.randn(4, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    b[1] = 0  # scikit-learn gives a zero vector cosine 0 too
    torch.testing.assert_close(similarities(a, b), torch.from_numpy(cosine_similarity(a, b)))
    torch.testing.assert_close(similarities(a), torch.from_numpy(cosine_similarity(a)))


def test_similarities_of_words(royal):
    table = royal.similarities(["king", "man"], ["queen", "woman", "man"])
    truth = [
        [royal.cosine(row, column) for column in ("queen", "woman", "man")]
        for row in ("king", "man")
    ]
    torch.testing.assert_close(table, torch.tensor(truth))
    assert royal.similarities(royal).shape == (4, 4)


def test_unit_has_length_one_and_leaves_zero():
    by_hand = torch.tensor([[0.6, 0.8], [0.0, 0.0]])
    torch.testing.assert_close(unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), by_hand)


def test_pca_plane_agrees_with_scikit_learn():
    table = torch.randn(9, 5, generator=torch.manual_seed(0))
    places, explained = pca_plane(table)
    truth = PCA(2).fit(table.double().numpy())
    assert explained == pytest.approx(truth.explained_variance_ratio_.tolist())
    up = [
        1 if axis[abs(axis).argmax()] > 0 else -1 for axis in truth.components_
    ]  # the greatest entry is positive
    torch.testing.assert_close(
        places, torch.from_numpy(truth.transform(table.double().numpy()) * up)
    )


def test_neighbours_by_hand():
    vectors = compass()
    found = vectors.neighbours("east")
    assert [word for word, _ in found] == ["northeast", "north", "west"]
    assert [score for _, score in found] == pytest.approx([0.5**0.5, 0, -1])
    assert vectors.neighbours(torch.tensor([7.0, 0.0]), n=1) == [("east", 1.0)]


def test_neighbours_agree_with_scikit_learn():
    vectors = random_vectors()
    trees = NearestNeighbors(metric="cosine").fit(vectors.table.numpy())
    distances, rows = trees.kneighbors(vectors.table[7:8].numpy(), 6)
    found = vectors.neighbours("word7", n=5)
    assert [word for word, _ in found] == [f"word{row}" for row in rows[0, 1:]]
    assert [score for _, score in found] == pytest.approx(list(1 - distances[0, 1:]), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_tables_of_other_dtypes(dtype):
    vectors = Vectors(
        ["a", "b", "c"], torch.tensor([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.5]], dtype=dtype)
    )
    assert vectors.neighbours("a", n=1) == [("b", pytest.approx(0.5**0.5))]
    assert vectors.table.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_trainable_table_is_not_changed():
    table = torch.nn.Parameter(torch.eye(3))
    vectors = Vectors(["a", "b", "c"], table)
    assert not vectors["a"].requires_grad
    assert vectors.neighbours(table[1], n=1) == [("b", 1.0)]


def test_king_minus_man_plus_woman_is_queen(royal):
    sum_ = royal["king"] - royal["man"] + royal["woman"]
    torch.testing.assert_close(sum_, royal["queen"])
    word, score = royal.analogy("man", "king", "woman", normalised=False)[0]
    assert (word, score) == ("queen", pytest.approx(1, abs=1e-6))


def test_analogy_normalises_by_default(royal):
    king, man, woman, queen = (
        torch.tensor(ROYAL[word]) for word in ("king", "man", "woman", "queen")
    )
    unit_sum = king / king.norm() - man / man.norm() + woman / woman.norm()
    word, score = royal.analogy("man", "king", "woman")[0]
    assert (word, score) == ("queen", pytest.approx(1 - distance.cosine(unit_sum, queen), abs=1e-6))
    assert score < 0.999  # not the exact sum of the raw vectors


def test_vector_lengths_can_change_the_answer():
    # right − left + up: of length one, (2, 1), which is "flat"; as they are, (2, 10), which is
    # "steep".
    points = {
        "left": [-1.0, 0.0],
        "right": [1.0, 0.0],
        "up": [0.0, 10.0],
        "flat": [2.0, 1.0],
        "steep": [2.0, 10.0],
    }
    vectors = Vectors(list(points), torch.tensor(list(points.values())))
    assert vectors.analogy("left", "right", "up", n=1) == [("flat", pytest.approx(1))]
    assert vectors.analogy("left", "right", "up", n=1, normalised=False) == [
        ("steep", pytest.approx(1))
    ]


def test_without_exclusion_a_question_word_often_wins():
    points = {
        "a": [1.0, 0.0, 0.0],
        "b": [1.0, 0.2, 0.0],
        "c": [0.0, 0.0, 1.0],
        "d": [0.0, 0.5, 0.5],
    }
    vectors = Vectors(list(points), torch.tensor(list(points.values())))
    assert vectors.analogy("a", "b", "c")[0][0] == "d"
    assert vectors.analogy("a", "b", "c", excluding=False)[0][0] == "c"
    assert {word for word, _ in vectors.analogy("a", "b", "c")} == {"d"}
    assert {word for word, _ in vectors.analogy("a", "b", "c", excluding=False)} == {
        "a",
        "b",
        "c",
        "d",
    }


def test_analogy_accepts_vectors():
    vectors = compass()
    north = torch.tensor([0.0, 1.0])
    assert vectors.analogy(north, "east", north, n=1) == [("northeast", pytest.approx(0.5**0.5))]


def test_zero_vector_has_no_neighbours():
    vectors = compass(nowhere=[0.0, 0.0])
    assert vectors.cosine("nowhere", "east") == 0
    assert vectors.cosine("nowhere", "nowhere") == 0
    assert [word for word, _ in vectors.neighbours("east")] == ["northeast", "north", "west"]
    assert "nowhere" not in dict(vectors.analogy("east", "north", "west", n=9, excluding=False))
    assert not vectors.similarities(vectors).isnan().any()
    with pytest.raises(
        RegardError, match=r"^the vector of 'nowhere' is zero and has no direction; use another"
    ):
        vectors.neighbours("nowhere")
    with pytest.raises(
        RegardError, match=r"^the vector of b − a \+ c is zero and has no direction"
    ):
        vectors.analogy("east", "east", "nowhere")
    with pytest.raises(
        RegardError, match=r"^the vector of the query is not finite and has no direction"
    ):
        vectors.neighbours(torch.tensor([0.0, torch.nan]))


def test_words_can_be_listed_and_looked_up():
    vectors = compass()
    assert (len(vectors), next(iter(vectors)), "east" in vectors, "south" in vectors) == (
        4,
        "east",
        True,
        False,
    )
    torch.testing.assert_close(vectors["north"], torch.tensor([0.0, 3.0]))


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("East", "did you mean 'east'?"),
        ("nort", "did you mean 'north'?"),
        ("zebra", "the table has 4 words, such as 'east'"),
        ("", "the table has 4 words, such as 'east'"),
    ],
)
def test_unknown_word_suggests_a_similar_one(word, hint):
    with pytest.raises(UnknownName) as error:
        compass().neighbours(word)
    assert str(error.value) == f"unknown word {word!r}; {hint}"


def test_errors_name_the_mistake():
    with pytest.raises(
        ShapeError, match=r"^a table needs one vector per word; got 2 words, shape \(3, 4\)$"
    ):
        Vectors(["a", "b"], torch.ones(3, 4))
    with pytest.raises(
        ShapeError, match=r"^a table needs one vector per word; got 0 words, shape \(0, 4\)$"
    ):
        Vectors([], torch.ones(0, 4))
    with pytest.raises(
        RegardError, match=r"^the word 'b' occurs more than once; each word has one vector$"
    ):
        Vectors(["a", "b", "b"], torch.ones(3, 4))
    for wrong in (torch.nan, torch.inf):
        with pytest.raises(RegardError, match=r"^the vector of 'b' is not finite$"):
            Vectors(["a", "b"], torch.tensor([[1.0, 2.0], [0.0, wrong]]))
    with pytest.raises(ShapeError, match=r"^a vector must have 2 numbers; got shape \(3,\)$"):
        compass().neighbours(torch.ones(3))
    with pytest.raises(RegardError, match=r"^n must be at least 1; got 0$"):
        compass().neighbours("east", n=0)


NAMES = [f"w{i}" for i in range(20)]


def test_vectors_and_trainable_tables_are_copied():
    base = torch.randn(20, 8)
    before = base.clone()
    vectors = Vectors(NAMES, base)
    king = vectors["w1"]
    king -= vectors["w0"]
    assert torch.equal(base, before)
    learned = torch.nn.Parameter(base.clone())
    vectors = Vectors(NAMES, learned)
    with torch.no_grad():
        learned *= torch.linspace(0.1, 10, 20)[:, None]
    word, found = vectors.neighbours("w5", 1)[0]
    assert found == pytest.approx(vectors.cosine("w5", word), abs=1e-6)
