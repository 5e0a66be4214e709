"""int8 weights: values and scales by hand and against float64."""

import numpy as np
import pytest

from regard.errors import RegardError
from regard.int8 import SCALE_SUFFIX, dequantize_rows, quantize_rows, quantize_tensors


def test_a_matrix_by_hand():
    weight = np.array([[127, -254, 63.4], [0, 0, 0], [1, 0.5, -0.25]], np.float32)
    quantised, scales = quantize_rows(weight)
    assert quantised.dtype == np.int8
    assert scales.tolist() == pytest.approx([2, 1, 1 / 127])
    assert quantised.tolist() == [[64, -127, 32], [0, 0, 0], [127, 64, -32]]  # 63.5 to even
    assert dequantize_rows(quantised, scales)[0].tolist() == [128, -254, 64]


def test_the_error_is_at_most_half_a_step_of_the_float64_formula():
    weight = np.random.default_rng(1).normal(size=(37, 53)).astype(np.float32)
    quantised, scales = quantize_rows(weight)
    exact = np.abs(weight.astype(np.float64)).max(1) / 127
    np.testing.assert_allclose(scales, exact, rtol=1e-7)
    errors = np.abs(dequantize_rows(quantised, scales).astype(np.float64) - weight)
    assert (errors <= 0.5 * exact[:, None] * (1 + 1e-5)).all()
    assert errors.max() > 0.45 * exact.min()
    assert np.abs(quantised.astype(int)).max(1).tolist() == [127] * 37


def test_only_named_tensors_are_quantised():
    tensors = {"a": np.ones((2, 3), np.float32), "b": np.ones(3, np.float32)}
    found = quantize_tensors(tensors, {"a", "c"})
    assert {name: str(array.dtype) for name, array in found.items()} == {
        "a": "int8",
        f"a{SCALE_SUFFIX}": "float32",
        "b": "float32",
    }


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(bad: float):
    with pytest.raises(RegardError, match="not finite"):
        quantize_rows(np.array([[1, bad]], np.float32))


def test_subnormal_rows_become_zero():
    quantised, scales = quantize_rows(np.full((1, 2), 1e-45, np.float32))
    assert quantised.tolist() == [[0, 0]]
    assert scales.tolist() == [1]
