"""The fast Transformer: sources of mixed lengths, and its tables of additive positions."""

import pytest
import torch

from regard.errors import RegardError
from regard.inference import inference_model
from regard.inference.fast_transformer import FastTransformer
from regard.positions import POSITIONS
from regard.ragged import Ragged
from tests.contracts.model_cases import TARGET, make
from tests.models.tracked_decoding import assert_close, random_batch

additive = pytest.mark.parametrize("position", ["sinusoidal", "learned"])


def fast_model(position: str) -> FastTransformer:
    return inference_model(make(f"transformer-position-{position}"), "fast")


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_padding_does_not_change_short_sources(position: str):
    model, fast = make(f"transformer-position-{position}"), fast_model(position)
    source, prefix = random_batch([2, 7, 1, 5]), random_batch([4] * 4, TARGET)
    full = torch.stack(model(source, prefix).unbind())
    state = fast.start(fast.encode(source))
    for t, tokens in enumerate(torch.stack(prefix.unbind(), 1)):
        logits, state = fast.step(tokens, state)
        assert_close(logits, full[:, t])
    longest = source.unbind()[1]
    alone = fast.encode(Ragged.of([longest])).vectors
    assert_close(fast.encode(source).vectors[2:9], alone)


@additive
@torch.no_grad()
def test_there_is_one_position_table_per_encoding(position: str):
    model = fast_model(position)
    for length in (*range(2, 300, 7), 5):
        model.encode(random_batch([length]))
        model.encode(random_batch([length, 1]))
    state = model.start(model.encode(random_batch([3])))
    for _ in range(70):
        _, state = model.step(torch.tensor([4]), state)
    sizes = sorted(len(table) for table in model.position_tables.values())
    assert sizes == [128, 512]  # of the decoder and of the encoder


@additive
@torch.no_grad()
def test_parts_of_the_table_equal_the_encoding(position: str):
    model = fast_model(position)
    encoding = model.added_positions[0]
    for start, count in ((0, 3), (5, 1), (0, 64), (64, 1), (0, 300), (2, 7), (299, 1)):
        expected = encoding(torch.arange(start, start + count))
        assert torch.equal(model._added(encoding, start, count), expected)


@torch.no_grad()
def test_the_table_of_learned_positions_ends_with_them():
    model = fast_model("learned")
    encoding = model.added_positions[0]
    encoding.max_length, encoding.table.data = 100, encoding.table.data[:100].clone()
    assert torch.equal(model._added(encoding, 0, 70), encoding.table[:70])
    assert len(model.position_tables[id(encoding)]) == 100
    with pytest.raises(RegardError, match=r"^position 100 is beyond the 100 learned positions; "):
        model._added(encoding, 100, 1)
    assert torch.equal(model._added(encoding, 99, 1), encoding.table[99:])
