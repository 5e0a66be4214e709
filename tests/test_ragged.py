"""Ragged: concatenated sequences, and their padded form, by hand."""

import pytest
import torch

from regard import Ragged
from regard.attention.cache import Padded, pad, unpad
from regard.config import TransformerSettings
from regard.errors import ShapeError
from regard.models import build
from regard.search import Greedy

ROWS = [[1, 2, 3], [], [4], [5, 6]]


def words() -> Ragged:
    return Ragged.of([torch.tensor(row, dtype=torch.long) for row in ROWS])


def test_sequences_are_concatenated():
    batch = words()
    assert batch.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert batch.offsets.tolist() == [0, 3, 3, 4, 6]
    assert batch.lengths.tolist() == [3, 0, 1, 2]
    assert (len(batch), batch.longest, batch.layout.tokens) == (4, 3, 6)
    assert repr(batch) == "Ragged(4 sequences, 6 tokens, longest 3)"


def test_unbind_inverts_of():
    sequences = [torch.randn(length, 3, 2) for length in (4, 0, 1)]
    batch = Ragged.of(sequences)
    assert all(torch.equal(a, b) for a, b in zip(batch.unbind(), sequences, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(batch, sequences, strict=True))


def test_rows_positions_and_padded_index():
    layout = words().layout
    assert layout.rows.tolist() == [0, 0, 0, 2, 3, 3]
    assert layout.positions.tolist() == words().positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert layout.padded_index.tolist() == [0, 1, 2, 6, 9, 10]  # four rows of three


def test_uniform_batches():
    batch = Ragged.uniform(torch.arange(6), 2)
    assert [row.tolist() for row in batch] == [[0, 1, 2], [3, 4, 5]]
    assert batch.layout.is_uniform
    assert Ragged.of(batch.unbind()).layout.is_uniform
    assert not words().layout.is_uniform
    assert Ragged(
        torch.zeros(0, 3), torch.tensor([0, 0, 0])
    ).layout.is_uniform  # two empty sequences


def test_like_shares_the_layout():
    batch = words()
    other = batch.like(torch.randn(6, 5))
    assert other.layout is batch.layout
    assert other.values.shape == (6, 5)
    with pytest.raises(ShapeError, match=r"^this batch has 6 tokens; got values for 5$"):
        batch.like(torch.randn(5, 5))


def test_twice_repeats_the_batch():
    once, twice = words(), words().twice()
    assert [row.tolist() for row in twice] == 2 * [row.tolist() for row in once]
    assert twice.offsets.tolist() == [0, 3, 3, 4, 6, 9, 9, 10, 12]
    assert (twice.longest, twice.layout.tokens) == (3, 12)
    assert twice.layout.positions.tolist() == 2 * [0, 1, 2, 0, 0, 1]


def test_same_lengths_ignores_values():
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


def test_batch_of_empty_sequences():
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


def test_batch_without_sequences_is_an_error():
    with pytest.raises(
        ShapeError, match=r"^a batch needs at least one sequence \(it may be empty\); got none$"
    ):
        Ragged.of([])


def test_uniform_batch_must_divide():
    with pytest.raises(ShapeError, match=r"^this batch has 6 tokens; got values for 7$"):
        Ragged.uniform(torch.arange(7), 2)


def test_padding_fills_rows_with_zeros():
    batch = words()
    tokens = batch.like(batch.values.view(6, 1, 1).float().expand(6, 2, 1))  # (token, head, dim)
    padded = pad(tokens)
    assert padded.tensor.shape == (4, 2, 3, 1)
    assert padded.tensor[:, 1, :, 0].tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0], [5, 6, 0]]
    assert padded.lengths.tolist() == [3, 0, 1, 2]
    back = unpad(padded.tensor, batch.layout)
    assert torch.equal(back.values, tokens.values)
    assert back.layout is batch.layout


def test_padding_does_not_copy_dense_batches():
    dense, even = torch.randn(2, 3, 4, 5), Ragged.uniform(torch.randn(8, 3, 5), 2)
    assert pad(dense).tensor is dense
    assert pad(even).tensor.data_ptr() == even.values.data_ptr()
    assert pad(even).lengths is None
    assert pad(padded := Padded(dense, torch.tensor([4, 1]))) is padded


def test_gradient_of_pad_and_unpad():
    values = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    batch = words().like(values)

    def there(x: torch.Tensor) -> torch.Tensor:
        return pad(batch.like(x)).tensor

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return unpad(pad(batch.like(x)).tensor.square(), batch.layout).values

    assert torch.autograd.gradcheck(there, values)
    assert torch.autograd.gradcheck(there_and_back, values)


def test_batch_used_in_inference_mode_can_be_trained_on():
    model = build(
        TransformerSettings(width=16, heads=4, ffn_width=16, encoder_layers=1, decoder_layers=1),
        10,
        10,
    )
    source = Ragged.of([torch.tensor([4, 5, 3]), torch.tensor([4, 3])])
    prefix = Ragged.of([torch.tensor([1, 5]), torch.tensor([1, 5, 6])])
    Greedy()(model, source, torch.tensor([5, 5]))
    with torch.inference_mode():
        model(source, prefix)
    model(source, prefix).values.sum().backward()
    assert model.source.table.grad.abs().sum() > 0


def test_token_shapes_must_agree():
    with pytest.raises(
        ShapeError, match=r"all tokens of a batch must have the same shape; got \(3,\) and \(4,\)"
    ):
        Ragged.of([torch.zeros(2, 3), torch.zeros(2, 4)])


def test_sequences_from_a_generator():
    sequences = (torch.arange(length) for length in (3, 2))
    assert [x.tolist() for x in Ragged.of(sequences).unbind()] == [[0, 1, 2], [0, 1]]
