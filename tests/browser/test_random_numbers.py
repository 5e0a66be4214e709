"""Random numbers that the page's code explains, recomputed in NumPy (benchmarks/explaining.py)."""

from benchmarks.explaining import check_batch


def test_a_thousand_random_derived_numbers_are_right(browser):
    from explaining_derived import page_functions  # on the path of benchmarks.explaining
    from explaining_gates import DERIVED

    found = check_batch("page", 1_000, page_functions(browser))
    assert found.wrong == []
    assert found.numbers >= 1_000
    assert found.derived.total() > 300
    assert set(found.derived) == DERIVED
