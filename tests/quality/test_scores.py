"""Scores by the papers' conventions, against numbers computed by hand or by another library."""

import jiwer
import pytest
from quality_scores import CONVENTIONS, among, better, bleu, exact, languages, limit, phones
from quality_sets import READERS, Example

READ = Example("READ", ["R IY D", "R EH D"])
THROUGH = Example("THROUGH", ["TH R UW"])


def test_a_word_may_match_any_of_its_variants():
    found = phones([["R EH D"], ["TH R OW G"]], [READ, THROUGH])
    assert found == {
        "wer": 50.0,
        "per": pytest.approx(100 * 2 / 6),
    }  # one changed and one added, of 3 + 3 phones
    assert found["per"] == pytest.approx(
        100 * jiwer.wer(["R EH D", "TH R UW"], ["R EH D", "TH R OW G"])
    )


def test_phone_errors_use_the_nearest_variant_and_its_length():
    ate = Example("X", ["A B C D E", "A B"])
    assert phones([["A C"]], [ate])["per"] == pytest.approx(100 * 1 / 2)
    assert phones([["A B C D"]], [ate])["per"] == pytest.approx(100 * 1 / 5)
    assert phones([["A B C D", "A B"]], [ate])["wer"] == 100.0  # the second output does not count


def test_accuracy_among_the_first_three():
    examples = [Example(name, ["right"]) for name in "abcd"]
    outputs = [["right", "x", "y"], ["x", "y", "right"], ["x", "y", "z", "right"], ["x"]]
    assert among(outputs, examples) == {"1-best": 0.25, "3-best": 0.5}
    assert exact(outputs, examples) == {"exact": 25.0, "groups": {"": 25.0}}


def test_unicode_forms_of_a_letter_are_equal():
    assert exact([["w\u0302yn"]], [Example("oen", ["ŵyn"])])["exact"] == 100.0


def test_languages_have_equal_weight():
    examples = [Example("a", ["x"], "welsh"), *(Example("b", ["x"], "german") for _ in range(4))]
    found = languages([["y"], ["x"], ["x"], ["x"], ["y"]], examples)
    assert found == {"accuracy": 37.5, "groups": {"welsh": 0.0, "german": 75.0}}


def test_tokenised_bleu_keeps_the_tokens():
    examples = [Example("", ["ein mann , der läuft , lacht ."])]
    stuck = [["ein mann, der läuft, lacht."]]
    assert bleu([[examples[0].references[0]]], examples, tokenize="none")["bleu"] == pytest.approx(
        100
    )
    assert bleu(stuck, examples, tokenize="13a")["bleu"] == pytest.approx(100)
    assert bleu(stuck, examples, tokenize="none")["bleu"] < 50
    assert "tok:none" in bleu(stuck, examples, tokenize="none")["signature"]


def test_raw_bleu_is_cased_and_has_a_signature():
    examples = [Example("", ["Ein Mann läuft durch den Wald ."])]
    found = bleu([["ein mann läuft durch den wald ."]], examples, tokenize="13a")
    assert found["bleu"] < 50
    assert "case:mixed" in found["signature"]
    assert "tok:13a" in found["signature"]


def test_every_set_has_a_convention_and_a_direction():
    assert set(CONVENTIONS) == set(READERS)
    assert [better(figure) for figure in ("test wer", "test per", "2016 bleu", "test 1-best")] == [
        -1,
        -1,
        1,
        1,
    ]
    assert [limit(figure) for figure in ("test wer", "2016 bleu", "test 3-best")] == [
        0.0,
        100.0,
        1.0,
    ]
    assert all(one.source for convention in CONVENTIONS.values() for one in convention.published)
