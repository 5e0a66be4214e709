"""Teacher forcing, alignments and streaming on the native engine against torch."""

from typing import Any

import numpy as np
import pytest
import torch

from regard.native import NativeOptions
from regard.native.library import NativeError
from regard.ragged import Ragged
from regard.search import Beam, BeamSearch, LengthPenalty, length_limits
from regard.teacher_forcing import alignment, attention_maps, target_logps
from regard.text import with_end
from tests.native.native_models import TINY, TINY_RECURRENT, random_pair, random_sources

MODELS: list[dict[str, Any]] = [
    {**TINY, "heads": 4, "kv_heads": 2},
    {**TINY, "window": 2, "position": "alibi"},
    TINY_RECURRENT,
    {**TINY_RECURRENT, "attention": "luong", "score": "general"},
]


def random_targets(count: int) -> list[list[int]]:
    """Random targets, one of them empty."""
    chance = torch.Generator().manual_seed(3)
    return [torch.randint(3, 13, (i,), generator=chance).tolist() for i in range(count)]


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_scores_and_alignments_are_those_of_torch(settings: dict[str, Any]):
    model, native = random_pair(settings)
    sources, targets = random_sources(8), random_targets(8)
    found = native.score(sources, targets)
    for one, target, logps in zip(
        found, targets, target_logps(model, sources, targets), strict=True
    ):
        assert one.ids == target
        np.testing.assert_allclose(one.logps, logps, rtol=0, atol=1e-4)
        assert one.score == pytest.approx(sum(logps), abs=1e-4)
    for source, target in zip(sources, targets, strict=True):
        expected = alignment(model, attention_maps(model, source, target))
        aligned = native.align(source, target)
        assert aligned.shape == (len(target) + 1, len(source) + 1)
        np.testing.assert_allclose(aligned, expected.numpy(), rtol=0, atol=1e-5)


def test_scores_are_the_log_probabilities_of_search():
    _, native = random_pair(TINY, seed=5)
    sources = random_sources(20)
    found = [one[0] for one in native.search(sources, [12] * 20, NativeOptions(beam=4))]
    scored = native.score(sources, [one.ids for one in found], threads=2)
    assert [one.logps for one in scored] == [one.logps for one in found]


def test_a_model_without_attention_is_not_aligned():
    _, native = random_pair({**TINY_RECURRENT, "attention": "none"})
    assert native.score([[4]], [[5]])[0].ids == [5]
    with pytest.raises(NativeError, match="no cross-attention to align with"):
        native.align([4], [5])


def test_bad_targets_raise():
    _, native = random_pair(TINY)
    with pytest.raises(NativeError, match="token 13 is not in the target vocabulary"):
        native.score([[4]], [[13]])
    with pytest.raises(NativeError, match="1 sources need as many targets; got 2"):
        native.score([[4]], [[5], [6]])


@pytest.mark.parametrize("beam", [1, 4])
def test_streams_commit_the_prefixes_of_torch(beam: int):
    model, native = random_pair(TINY, seed=8)
    options = NativeOptions(beam=beam, length_penalty=1.0)
    compared = 0
    for source in random_sources(12):
        batch = with_end(Ragged.of([torch.tensor(source)]))
        limit = length_limits(batch.lengths, 12)
        search = BeamSearch(Beam(beam, length_penalty=LengthPenalty(1.0)), model, batch, limit)
        expected = [search.committed_prefix() for _ in search]
        best = search.results()[0]
        if best.margin < 1e-4:
            continue
        *steps, (ids, finished) = native.stream(source, int(limit[0]), options)
        compared += 1
        assert finished
        assert ids == list(best.hypotheses[0].ids)
        assert [prefix for prefix, _ in steps[:-1]] == expected[: len(steps) - 1]
        assert not any(done for _, done in steps)
    assert compared >= 6


def test_an_abandoned_stream_frees_its_search():
    _, native = random_pair(TINY)
    stream = native.stream([4, 5], 12)
    next(stream)
    stream.close()
    with pytest.raises(NativeError, match="samples are not streamed"):
        next(native.stream([4], 12, NativeOptions(sample=True)))
    impossible = NativeOptions(beam=2, min_length=5, max_length=2)
    assert [done for _, done in native.stream([4], 12, impossible)][-1] is False
