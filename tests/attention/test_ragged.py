"""Ragged: sequences end to end, and the dense rows a backend makes of them, by hand."""

import pytest
import torch

from regard import Ragged
from regard.attention.padded import Padded, pad, unpad
from regard.errors import ShapeError

ROWS = [[1, 2, 3], [], [4], [5, 6]]


def words() -> Ragged:
    return Ragged.of([torch.tensor(row, dtype=torch.long) for row in ROWS])


def test_sequences_lie_end_to_end():
    batch = words()
    assert batch.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert batch.offsets.tolist() == [0, 3, 3, 4, 6]
    assert batch.lengths.tolist() == [3, 0, 1, 2]
    assert (len(batch), batch.longest, batch.layout.tokens) == (4, 3, 6)
    assert repr(batch) == "Ragged(4 sequences, 6 tokens, longest 3)"


def test_unbinding_gives_back_what_was_joined():
    sequences = [torch.randn(length, 3, 2) for length in (4, 0, 1)]
    batch = Ragged.of(sequences)
    assert all(torch.equal(a, b) for a, b in zip(batch.unbind(), sequences, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(batch, sequences, strict=True))


def test_every_token_knows_its_sequence_its_place_and_its_slot():
    layout = words().layout
    assert layout.rows.tolist() == [0, 0, 0, 2, 3, 3]
    assert layout.positions.tolist() == words().positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert layout.padded_index.tolist() == [0, 1, 2, 6, 9, 10]  # four rows of three


def test_even_batches_have_one_length():
    batch = Ragged.uniform(torch.arange(6), 2)
    assert [row.tolist() for row in batch] == [[0, 1, 2], [3, 4, 5]]
    assert batch.layout.is_uniform
    assert Ragged.of(batch.unbind()).layout.is_uniform
    assert not words().layout.is_uniform
    assert Ragged(torch.zeros(0, 3), torch.tensor([0, 0, 0])).layout.is_uniform  # two empty sequences


def test_like_shares_the_layout():
    batch = words()
    other = batch.like(torch.randn(6, 5))
    assert other.layout is batch.layout
    assert other.values.shape == (6, 5)
    with pytest.raises(ShapeError, match=r"^this batch has 6 tokens; got values for 5$"):
        batch.like(torch.randn(5, 5))


def test_twice_is_all_of_it_and_all_of_it_again():
    once, twice = words(), words().twice()
    assert [row.tolist() for row in twice] == 2 * [row.tolist() for row in once]
    assert twice.offsets.tolist() == [0, 3, 3, 4, 6, 9, 9, 10, 12]
    assert (twice.longest, twice.layout.tokens) == (3, 12)
    assert twice.layout.positions.tolist() == 2 * [0, 1, 2, 0, 0, 1]


def test_same_cut_compares_lengths_not_values():
    batch = words()
    assert batch.same_lengths(batch.like(-batch.values))
    assert batch.same_lengths(words())
    assert not batch.same_lengths(Ragged(batch.values, torch.tensor([0, 2, 3, 4, 6])))


def test_to_moves_values_and_offsets_and_keeps_lengths():
    moved = words().to("meta")
    assert moved.values.device.type == moved.offsets.device.type == "meta"
    assert (moved.longest, moved.layout.tokens, len(moved)) == (3, 6, 4)
    back = words().to("cpu")
    assert [row.tolist() for row in back] == ROWS


def test_a_batch_of_empty_sequences_is_allowed():
    batch = Ragged.of([torch.zeros(0, 4), torch.zeros(0, 4)])
    assert (len(batch), batch.longest, batch.values.shape) == (2, 0, (0, 4))
    assert [row.shape for row in batch] == [(0, 4), (0, 4)]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "offsets must start with 0; got no offsets"),
        ([1, 6], r"offsets must start with 0; got \[1\]"),
        ([-1, 6], r"offsets must start with 0; got \[-1\]"),
        ([0, 4, 2, 6], r"offsets must not decrease: offsets\[1\] is 4, offsets\[2\] is 2"),
        ([0, -2, 6], r"offsets must not decrease: offsets\[0\] is 0, offsets\[1\] is -2"),
        ([0, 2, 5], "the last offset must be the token count, 6; got 5"),
        ([0, 2, 7], "the last offset must be the token count, 6; got 7"),
    ],
)
def test_bad_offsets_are_named(offsets: list[int], message: str):
    with pytest.raises(ShapeError, match=f"^{message}$"):
        Ragged(torch.arange(6), torch.tensor(offsets, dtype=torch.long))


def test_a_batch_of_nothing_is_an_error():
    with pytest.raises(ShapeError, match=r"^a batch needs at least one sequence \(it may be empty\); got none$"):
        Ragged.of([])


def test_an_even_batch_must_divide():
    with pytest.raises(ShapeError, match=r"^this batch has 6 tokens; got values for 7$"):
        Ragged.uniform(torch.arange(7), 2)


def test_padding_puts_tokens_in_rows_and_zeros_behind():
    batch = words()
    tokens = batch.like(batch.values.view(6, 1, 1).float().expand(6, 2, 1))  # (token, head, dim)
    padded = pad(tokens)
    assert padded.tensor.shape == (4, 2, 3, 1)
    assert padded.tensor[:, 1, :, 0].tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0], [5, 6, 0]]
    assert padded.lengths.tolist() == [3, 0, 1, 2]
    back = unpad(padded.tensor, batch.layout)
    assert torch.equal(back.values, tokens.values)
    assert back.layout is batch.layout


def test_padding_copies_nothing_that_is_dense_already():
    dense, even = torch.randn(2, 3, 4, 5), Ragged.uniform(torch.randn(8, 3, 5), 2)
    assert pad(dense).tensor is dense
    assert pad(even).tensor.data_ptr() == even.values.data_ptr()
    assert pad(even).lengths is None
    assert pad(held := Padded(dense, torch.tensor([4, 1]))) is held


def test_the_gradient_of_padding_and_back():
    values = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    batch = words().like(values)

    def there(x: torch.Tensor) -> torch.Tensor:
        return pad(batch.like(x)).tensor

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return unpad(pad(batch.like(x)).tensor.square(), batch.layout).values

    assert torch.autograd.gradcheck(there, values)
    assert torch.autograd.gradcheck(there_and_back, values)
