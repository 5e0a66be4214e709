"""The memory of caches: used again when nobody holds it, and only then."""

import pytest
import torch

from regard.inference import kv_cache as held
from tests.models.test_branch import Walk, made
from tests.models.test_matrix import SOURCE, TARGET, ids

NAME = "fast transformer-rotary-pre"


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(held, "LARGE", 1)


@torch.no_grad()
def test_rooms_that_come_and_go_in_the_same_memory_hold_what_was_said():
    walk, reused = Walk(made(NAME), ids([5, 1, 7], SOURCE)), 0
    walk.step()
    walk.branch([0, 0, 1, 1, 2, 2])
    for _ in range(20):  # each step is held to teacher forcing; rooms grow on the way
        waiting = {flat.data_ptr() for flat in walk.state.past.pool.free}
        walk.step()
        walk.branch([1, 0, 2, 2, 5, 4])
        reused += walk.state.past.tensor.data_ptr() in waiting
    assert reused >= 12  # all but the first two of each length
    walk.branch([2, 3], kept=[1])
    walk.step()
    walk.select([1])
    walk.step()


@torch.no_grad()
def test_what_a_state_holds_is_not_given_away():
    model, tokens = made(NAME), torch.randint(TARGET, (3,))
    _, kept = model.step(tokens, model.start(model.encode(ids([5, 1, 7], SOURCE))))
    before, _ = model.step(tokens, kept)
    state = kept
    for _ in range(12):
        _, state = model.step(tokens, state.branch(torch.tensor([2, 0, 1])))
    after, _ = model.step(tokens, kept)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_memory_that_was_given_back_serves_a_smaller_room_and_then_again_a_larger_one():
    store, like = held.BufferPool(), torch.empty(0)
    first = store.take((4, 6), like)
    address = first.data_ptr()
    store.give(first)
    part = store.take((2, 3), like)
    assert (part.data_ptr(), tuple(part.shape)) == (address, (2, 3))
    assert store.take((4, 6), like).data_ptr() != address  # that one is taken
    store.give(part)
    assert store.take((4, 6), like).data_ptr() == address
