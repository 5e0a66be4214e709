"""Contract of traces: they follow the model, and every number explains itself.

Every test runs for every case of the contract matrix (model_cases.py).
"""

import math
import random
from itertools import product

import pytest
import torch

from regard.pipeline import Pipeline
from regard.teacher_forcing import record_attention
from regard.trace import Trace, record
from tests.contracts.model_cases import (
    CASES,
    PAIRS,
    decoder_input,
    encoder_input,
    make_pipeline,
)

SOURCE, TARGET = "bead", "CAB"
CHECK = 3e-5


def assert_samples_explained(trace: Trace, samples: int) -> None:
    """So many numbers of every tensor are explained."""
    for name in trace.names:
        draw = random.Random(name)
        for _ in range(samples):
            index = tuple(draw.randrange(size) for size in trace[name].shape)
            assert_explained(trace, name, index)


def assert_follows_model(
    pipeline: Pipeline, source: str, target: str, *, samples: int = 2
) -> Trace:
    """The trace has the model's logits and attention weights, and explains its numbers."""
    trace = record(pipeline, source, target)
    assert trace.check < CHECK
    ids = encoder_input([pipeline.bundle.source.encode(source)])
    prefix = decoder_input([pipeline.bundle.target.encode(target)])
    expected = record_attention(pipeline.model, ids, prefix)
    assert len(expected) == len(trace.attentions)
    for weights, attention in zip(expected.values(), trace.attentions, strict=True):
        recorded = trace[f"{attention.name}.weights"]
        torch.testing.assert_close(recorded, weights, rtol=1e-4, atol=1e-5)
    assert_samples_explained(trace, samples)
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


@pytest.mark.parametrize("name", CASES)
def test_a_trace_follows_the_model_and_explains_itself(name: str):
    assert_follows_model(make_pipeline(name), SOURCE, TARGET)


@pytest.mark.parametrize("name", PAIRS)
def test_every_score_is_explained_with_every_normaliser(name: str):
    assert_follows_model(make_pipeline(name), SOURCE, TARGET, samples=1)


@pytest.mark.parametrize("name", ["transformer-window-alibi", "recurrent-lstm-sparsemax"])
def test_every_single_number_is_explained(name: str):
    trace = record(make_pipeline(name), SOURCE, TARGET)
    for tensor in trace.names:
        for index in product(*map(range, trace[tensor].shape)):
            assert_explained(trace, tensor, index)
