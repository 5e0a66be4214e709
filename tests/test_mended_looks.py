"""Faults that were found by looking at numbers from outside: each stays mended."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import regard
from regard import plots
from regard.errors import RegardError, ShapeError
from regard.pooling import NadarayaWatson
from regard.positions import Alibi, Sinusoidal
from regard.vectors import Vectors

WORDS = [f"w{i}" for i in range(20)]


@pytest.fixture(scope="module")
def spelling():
    return regard.load("spelling")


def test_a_vector_that_was_looked_up_is_yours_and_one_that_is_learned_on_is_kept_as_it_was():
    base = torch.randn(20, 8)
    before = base.clone()
    vectors = Vectors(WORDS, base)
    king = vectors["w1"]
    king -= vectors["w0"]
    assert torch.equal(base, before)
    learned = torch.nn.Parameter(base.clone())
    vectors = Vectors(WORDS, learned)
    with torch.no_grad():
        learned *= torch.linspace(0.1, 10, 20)[:, None]
    word, found = vectors.neighbours("w5", 1)[0]
    assert found == pytest.approx(vectors.cosine("w5", word), abs=1e-6)


@pytest.mark.parametrize("size", [1e-23, 1e19])
def test_questions_about_tiny_and_huge_tables_are_answered_as_analogies_are(tmp_path, size):
    table = torch.randn(20, 8) * size
    vectors, rows = Vectors(WORDS, table), [("w1", "w2", "w3"), ("w4", "w5", "w6")]
    asked = [(*row, vectors.analogy(*row, n=1, normalised=False)[0][0]) for row in rows]
    (tmp_path / "questions.txt").write_text("\n".join(" ".join(row) for row in asked))
    assert vectors.accuracy(tmp_path / "questions.txt", normalised=False).all.right == 2


def test_a_byte_order_mark_is_no_part_of_a_word(tmp_path):
    path, mark = tmp_path / "f.txt", b"\xef\xbb\xbf"
    for text in (b"the 0.1 0.2 0.3\na 1 0 3\n", b"2 3\nthe 0.1 0.2 0.3\na 1 0 3\n"):
        path.write_bytes(mark + text)
        assert Vectors.read(path).words == ["the", "a"]
    for text in (b"w0 w1 w2 w3\n", b": sec\nw0 w1 w2 w3\n"):
        path.write_bytes(mark + text)
        assert Vectors(WORDS, torch.randn(20, 8)).accuracy(path).all.unknown == 0


def test_arrays_of_any_layout_are_pooled():
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    for bandwidth in (0.3, "leave-one-out"):
        whole = NadarayaWatson(bandwidth=bandwidth).fit(x.copy(), y)
        turned = NadarayaWatson(bandwidth=bandwidth).fit(x[::-1], y[::-1])
        np.testing.assert_allclose(turned.predict(x[::-1]), whole.predict(x)[::-1], rtol=1e-6)


def test_a_fitted_bandwidth_is_its_own():
    bandwidth = np.array([1.0, 1.0])
    made = NadarayaWatson(bandwidth=bandwidth).fit(np.eye(2), [0.0, 1.0])
    bandwidth *= 5
    assert made.bandwidth_.tolist() == [1.0, 1.0]


def test_a_query_beyond_all_numbers_has_no_weights():
    made = NadarayaWatson(bandwidth=1e-3).fit([[0.0], [1.0]], [0.0, 1.0])
    assert made.weights([[1e152], [0.5]]).tolist() == [[0.0, 0.0], [0.5, 0.5]]
    with pytest.warns(RuntimeWarning, match=r"give a larger bandwidth$"):
        assert np.isnan(made.predict([[1e152]])).all()


def test_arrays_of_any_layout_are_drawn():
    labels, weights = ["a", "b", "c"], np.full((3, 3), 1 / 3)
    still = weights.copy()
    still.flags.writeable = False
    for given in (weights[::-1], weights.astype(">f8"), weights.astype(np.longdouble), still):
        plots.weights(given, labels, allowed=np.ones((3, 3), dtype=bool)[::-1])
        plots.heads(np.stack([given, given])[::-1], labels)
    with pytest.raises(RegardError, match="must be boolean"):
        plots.weights(weights, labels, allowed=np.ones((3, 3), dtype=int))


def test_other_vectors_wear_their_own_names():
    for wrong in ({"others": -np.eye(3)}, {"other_labels": ["x", "y", "z"]}):
        with pytest.raises(RegardError, match="others and other_labels come together"):
            plots.similarity(np.eye(3), ["a", "b", "c"], **wrong)


def test_mean_scores_say_what_does_not_fit():
    with pytest.raises(ShapeError, match="Sinusoidal adds vectors of 512, and dim is 64"):
        plots.mean_scores(Sinusoidal(width=512), dim=64, heads=8)
    with pytest.raises(ShapeError, match=r"contents must be \(content, 64\), one at least; got shape \(0, 64\)"):
        plots.mean_scores(Alibi(heads=8), dim=64, heads=8, contents=torch.randn(0, 64))




def test_white_space_around_a_text_is_not_unknown(spelling):
    assert spelling(" attention\t").unknown == regard.record(spelling, " attention\t").answer.unknown == []
    assert spelling(" atté ntion\t").unknown == regard.record(spelling, " atté ntion\t").answer.unknown == ["é", " "]


def test_a_number_of_a_row_may_be_asked_for_by_itself(spelling):
    trace = regard.record(spelling, "at")
    assert trace.explain("out.chosen", 1).value == trace.explain("out.chosen", [1]).value




def test_all_parts_that_the_readme_names_are_there():
    for part in ("models", "kernels", "pipeline", "explore"):
        assert getattr(regard, part).__name__ == f"regard.{part}"


def test_what_is_no_text_is_one_line():
    """In a process of its own: here every call's types are checked, and it would not come so far."""
    asked = [
        "record(m, 5)",
        "record(m, 'a', edits={'kind': 'unmasked'})",
        "list_(m.stream(5))",
        "list_(m.scores(['ab']))",
    ]
    program = "import regard; from regard import *; from builtins import list as list_; m = regard.load('spelling')\n"
    for ask in (*asked, "m.score(5, 'AH')", "m.score('a', 5)", "m.sample(5)"):
        program += f"try:\n    {ask}; print('nothing')\nexcept regard.RegardError as error:\n    print(error)\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = ended.stdout.splitlines()
    assert said.count("text must be a str; got 5") == 5
    assert said[1].startswith("edits are a list of them")
    assert said[3] == "expected a pair of texts, source and target; got 'ab'"
