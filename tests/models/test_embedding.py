"""The embedding refuses positions beyond a learned table before any device sees them."""

from unittest.mock import Mock

import pytest
import torch

from regard.errors import RegardError
from regard.models.parts import Embedding
from regard.positions import Learned
from regard.ragged import Ragged


def test_positions_beyond_the_learned_table_are_refused():
    embedding = Embedding(10, 8, position=Learned(8, max_length=5))
    embedding(Ragged.of([torch.zeros(5, dtype=torch.long)]))
    embedding.position.forward = Mock(side_effect=AssertionError("a GPU would abort"))
    for length, offset in ((6, 0), (1, 5)):
        with pytest.raises(RegardError, match=r"^position 5 is beyond the 5 learned positions; "):
            embedding(Ragged.of([torch.zeros(length, dtype=torch.long)]), offset)
