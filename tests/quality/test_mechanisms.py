"""The comparison of mechanisms: which rows get more seeds, and what the tables and checks show."""

import pytest
from mechanisms_tables import by_row, checks, close_rows, length_table, parts_table, rows


def result(name: str, rate: float, *, seed: int = 1, longest: float | None = None) -> dict:
    buckets = [rate, rate, rate, rate if longest is None else longest]
    return {
        "name": name,
        "axis": rows()[name].axis,
        "seed": seed,
        "parameters": 1_000,
        "tokens": 500,
        "seconds": 5.0,
        "phone_error_rate": rate,
        "word_error_rate": 4 * rate,
        "by_length": [{"phone_error_rate": value} for value in buckets],
    }


def test_rows_cover_every_axis():
    names = list(rows())
    assert names[:2] == ["none", "additive"]
    assert "transformer, rotary" in names
    assert "cosine × sparsemax" in names
    assert "gaussian × boxcar" in names
    assert "dot × boxcar" not in names  # a kernel reads its score as a Gaussian distance
    assert sum(name.endswith("× uniform") for name in names) == 1  # it ignores the score


def test_close_rows_are_found_within_their_axis():
    found = [
        result("none", 10.0),
        result("additive", 8.0),
        result("dot", 8.5),
        result("transformer, rotary", 9.9),  # close to none, but of another axis
        {"name": "general", "seed": 1, "error": "failed"},
    ]
    assert sorted(close_rows(found, 1.0)) == ["additive", "dot"]
    assert close_rows(found, 0.5) == []  # a difference of exactly 0.5 is not closer than 0.5
    assert sorted(close_rows(found, 2.0)) == ["additive", "dot", "none"]
    useless = [result("dot", 85.6), result("general", 85.6)]  # models that learned nothing
    assert close_rows(useless, 1.0) == []


def test_tables_have_means_and_spreads():
    name = "scaled-dot × softmax"
    groups = by_row(
        [result(name, rate, seed=seed) for seed, rate in ((1, 7.0), (2, 8.0), (3, 9.0))]
    )
    assert f"| {name} | 1,000 | 100 | 3 | 8.00 ± 1.00 | 32.00 ± 4.00 |" in length_table(groups)
    assert "| scaled-dot | 8.00 ± 1.00 |" in parts_table(groups)
    assert parts_table(by_row([result("additive", 8.0)])) == ""


def test_checks_compare_with_the_model_without_attention():
    found = [result("none", 9.0, longest=12.0), result("additive", 8.0, longest=8.0)]
    made = {check.name: check for check in checks(found)}
    ratio = made["without attention / best attention: phone error rate"]
    assert (ratio.value, ratio.ok) == (pytest.approx(9 / 8), True)
    longest = made["without attention / additive: phone error rate of the longest words"]
    assert (longest.value, longest.target) == (pytest.approx(12 / 8), pytest.approx(9 / 8))
    failed = [*found, {"name": "dot", "seed": 1, "error": "failed"}]
    assert not checks(failed)[0].ok
