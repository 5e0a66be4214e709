"""Random numbers that the page's code explains, recomputed in NumPy (benchmarks/explaining.py)."""

from benchmarks.explaining import check_batch


def test_a_thousand_random_derived_numbers_are_right(browser):
    from explaining_derived import page_functions  # on the path of benchmarks.explaining
    from explaining_gates import DERIVED
    from explaining_saved import saved_functions

    found = check_batch("page", 1_000, page_functions(browser), 1, saved_functions(browser))
    assert found.wrong == []
    assert found.numbers >= 1_000
    assert found.saved == found.operations.total() > 300
    assert found.derived.total() > 300
    assert set(found.derived) == DERIVED


def test_the_cosine_with_a_zero_vector_is_zero(browser):
    from explaining_derived import page_functions

    zero, other = (
        {"name": name, "lead": [0], "numbers": {"floats": numbers}}
        for name, numbers in (("src.position", [0.0, 0.0]), ("src.embed", [1.5, -2.0]))
    )
    (found,) = page_functions(browser)([["cosineOf", zero, other, "", 0.0]])
    assert (found["result"], found["value"], found["difference"]) == (0, 0, 0)
    assert [step["value"] for step in found["steps"]] == [0, 0, 2.5]
