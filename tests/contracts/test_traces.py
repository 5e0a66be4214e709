"""Contract of traces: they follow the model, and every number explains itself.

Every test runs for every case of the contract matrix (model_cases.py).
"""

import math
import random
from itertools import product

import pytest
import torch

from regard.search import record_attention
from regard.trace import Trace, record
from tests.contracts.model_cases import (
    CASES,
    PAIRS,
    decoder_input,
    encoder_input,
    make_pipeline,
)

SOURCE, TARGET = "bead", "CAB"
SAMPLES = 2  # numbers of each tensor that are explained
CHECK = 3e-5


def trace_of(name: str) -> Trace:
    """The trace of a case, which must have the model's own attention weights."""
    pipeline = make_pipeline(name)
    trace = record(pipeline, SOURCE, TARGET)
    source = encoder_input([pipeline.bundle.source.encode(SOURCE)])
    prefix = decoder_input([pipeline.bundle.target.encode(TARGET)])
    expected = record_attention(pipeline.model, source, prefix)
    assert len(expected) == len(trace.attentions)
    for weights, attention in zip(expected.values(), trace.attentions, strict=True):
        recorded = trace[f"{attention.name}.weights"]
        torch.testing.assert_close(recorded, weights, rtol=1e-4, atol=1e-5)
    return trace


def assert_explained(trace: Trace, name: str, index: tuple[int, ...]) -> None:
    """The explanation's float64 value agrees with the recorded number."""
    explained = trace.explain(name, index)
    assert explained.value == float(trace[name][index])
    if math.isinf(explained.value):
        assert explained.result == explained.value
    else:
        limit = 1e-5 * max(abs(explained.value), explained.computation.largest, 0.1)
        assert explained.difference <= limit, f"{name}{index}: {explained}"


def assert_samples_explained(trace: Trace) -> None:
    for name in trace.names:
        draw = random.Random(name)
        for _ in range(SAMPLES):
            index = tuple(draw.randrange(size) for size in trace[name].shape)
            assert_explained(trace, name, index)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_follows_the_model_and_explains_itself(name: str):
    trace = trace_of(name)
    assert trace.check < CHECK
    assert_samples_explained(trace)


@pytest.mark.parametrize("name", PAIRS)
def test_every_score_is_explained_with_every_normaliser(name: str):
    trace = trace_of(name)
    assert trace.check < CHECK
    assert_samples_explained(trace)


@pytest.mark.parametrize("name", ["transformer-window-alibi", "recurrent-lstm-sparsemax"])
def test_every_single_number_is_explained(name: str):
    trace = trace_of(name)
    for tensor in trace.names:
        for index in product(*map(range, trace[tensor].shape)):
            assert_explained(trace, tensor, index)
