"""The positions of the twin: one table for each encoding, and the very numbers that each position
adds by itself.
"""

from unittest.mock import Mock

import pytest
import torch

from regard.config import TransformerSettings
from regard.errors import RegardError
from regard.inference import inference_model
from regard.models import build
from regard.models.embedding import Embedding
from regard.positions import Learned
from regard.ragged import Ragged
from tests.models.test_matrix import SOURCE, TARGET, ids


def made(position: str):
    torch.manual_seed(0)
    sizes = {"width": 24, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 40}
    return inference_model(
        build(TransformerSettings(**sizes, position=position), SOURCE, TARGET).eval()
    )


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
@torch.no_grad()
def test_positions_are_kept_once_however_many_lengths_come(position: str):
    model = made(position)
    for length in (*range(2, 300, 7), 5):
        model.encode(ids([length], SOURCE))
        model.encode(ids([length, 1], SOURCE))
    state = model.start(model.encode(ids([3], SOURCE)))
    for _ in range(70):
        _, state = model.step(torch.tensor([4]), state)
    assert sorted(len(table) for table in model.position_tables.values()) == [
        128,
        512,
    ]  # what was said, what was read


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
@torch.no_grad()
def test_parts_of_the_table_are_what_each_position_adds(position: str):
    model = made(position)
    encoding = model.added_positions[0]
    for start, count in ((0, 3), (5, 1), (0, 64), (64, 1), (0, 300), (2, 7), (299, 1)):
        alone = encoding(torch.arange(start, start + count))
        assert torch.equal(model._added(encoding, start, count), alone)


@torch.no_grad()
def test_learned_positions_end_where_they_were_learned():
    model = made("learned")
    encoding = model.added_positions[0]
    encoding.max_length, encoding.table.data = 100, encoding.table.data[:100].clone()
    assert torch.equal(model._added(encoding, 0, 70), encoding.table[:70])
    assert len(model.position_tables[id(encoding)]) == 100
    with pytest.raises(RegardError, match=r"^position 100 is beyond the 100 learned positions; "):
        model._added(encoding, 100, 1)
    assert torch.equal(model._added(encoding, 99, 1), encoding.table[99:])


def test_a_sequence_past_what_was_learned_is_refused_before_any_device_is_asked():
    embedding = Embedding(10, 8, position=Learned(8, max_length=5))
    embedding(Ragged.of([torch.zeros(5, dtype=torch.long)]))
    embedding.position.forward = Mock(side_effect=AssertionError("a GPU would abort"))
    for length, offset in ((6, 0), (1, 5)):
        with pytest.raises(RegardError, match=r"^position 5 is beyond the 5 learned positions; "):
            embedding(Ragged.of([torch.zeros(length, dtype=torch.long)]), offset)
