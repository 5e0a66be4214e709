"""Memory of KV caches: a buffer is reused when no state refers to it, and only then."""

import pytest
import torch

from regard.inference import inference_model, kv_cache
from tests.contracts.model_cases import TARGET, make
from tests.models.tracked_decoding import TrackedDecoding, random_batch


@pytest.fixture(autouse=True)
def reuse_small_buffers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv_cache, "LARGE", 1)


def fast_model():
    return inference_model(make("transformer-position-rotary"), "fast")


@torch.no_grad()
def test_reused_buffers_hold_the_right_keys_and_values():
    decoding, reused = TrackedDecoding(fast_model(), random_batch([5, 1, 7])), 0
    decoding.step()
    decoding.branch([0, 0, 1, 1, 2, 2])
    for _ in range(20):  # each step is compared with teacher forcing; caches grow meanwhile
        free = {buffer.data_ptr() for buffer in decoding.state.past.pool.free}
        decoding.step()
        decoding.branch([1, 0, 2, 2, 5, 4])
        reused += decoding.state.past.tensor.data_ptr() in free
    assert reused >= 12  # all but the first two of each capacity
    decoding.branch([2, 3], sources=[1])
    decoding.step()
    decoding.select([1])
    decoding.step()


@torch.no_grad()
def test_buffers_of_a_live_state_are_not_reused():
    model, tokens = fast_model(), torch.randint(TARGET, (3,))
    _, live = model.step(tokens, model.start(model.encode(random_batch([5, 1, 7]))))
    before, _ = model.step(tokens, live)
    state = live
    for _ in range(12):
        _, state = model.step(tokens, state.branch(torch.tensor([2, 0, 1])))
    after, _ = model.step(tokens, live)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_returned_buffer_serves_smaller_and_larger_caches():
    pool, like = kv_cache.BufferPool(), torch.empty(0)
    first = pool.take((4, 6), like)
    address = first.data_ptr()
    pool.give(first)
    part = pool.take((2, 3), like)
    assert (part.data_ptr(), tuple(part.shape)) == (address, (2, 3))
    assert pool.take((4, 6), like).data_ptr() != address  # it is in use
    pool.give(part)
    assert pool.take((4, 6), like).data_ptr() == address
