"""Contract of every position encoding: in the encoder, in the decoder, and with the cache."""

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Cache, MultiHead, causal, everything, window
from regard.positions import POSITIONS, AdditivePosition, BiasPosition, RotaryPosition, position
from regard.ragged import Ragged
from tests.contracts.cases import OPTIONS

WIDTH, HEADS, GROUPS = 24, 4, 2
LENGTHS = [5, 1, 7, 0, 4]
names = pytest.mark.parametrize("name", POSITIONS)


class Layer(nn.Module):
    """One self-attention with a position in its proper place, as a model would use it."""

    def __init__(self, name: str, *, causal: bool, backend: str = "auto") -> None:
        super().__init__()
        place = position(
            name,
            width=WIDTH,
            heads=HEADS,
            dim=WIDTH // HEADS,
            causal=causal,
            **OPTIONS.get(name, {}),
        )
        self.added = place if isinstance(place, AdditivePosition) else None
        self.heads = MultiHead(
            WIDTH,
            HEADS,
            kv_heads=GROUPS,
            bias=place if isinstance(place, BiasPosition) else None,
            rotation=place if isinstance(place, RotaryPosition) else None,
            backend=backend,
        )
        with torch.no_grad():
            for parameter in place.parameters():
                parameter.normal_()
        self.mask = causal_mask if causal else everything

    def embed(self, tokens: Ragged, offset: Tensor | int = 0) -> Ragged:
        if self.added is None:
            return tokens
        first = offset[tokens.layout.rows] if isinstance(offset, Tensor) else offset
        return tokens.like(tokens.values + self.added(tokens.positions + first))

    def forward(self, tokens: Ragged) -> Ragged:
        return self.heads(self.embed(tokens), mask=self.mask)

    def step(self, tokens: Ragged, cache: Cache) -> tuple[Ragged, Cache]:
        return self.heads.step(self.embed(tokens, cache.offset), cache, mask=self.mask)


causal_mask = causal & window(6)


def batch(lengths: list[int] = LENGTHS) -> Ragged:
    return Ragged.of([torch.randn(length, WIDTH) for length in lengths])


def close(ours: Tensor, truth: Tensor) -> None:
    torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-5)


@names
@torch.no_grad()
@pytest.mark.parametrize("backend", ["reference", "sdpa", "flex"])
def test_cached_steps_equal_the_full_pass(name: str, backend: str):
    layer = Layer(name, causal=True, backend=backend)
    tokens = batch([6, 6, 6])
    whole, cache = layer(tokens), Cache()
    rows = torch.stack(tokens.unbind())
    for t in range(6):
        out, cache = layer.step(Ragged.uniform(rows[:, t], 3), cache)
        close(out.values, torch.stack(whole.unbind())[:, t])


@names
@torch.no_grad()
def test_rows_of_mixed_lengths_advance_together(name: str):
    """A prefix of another length in each row first, then one position each."""
    layer = Layer(name, causal=True)
    tokens = batch([5, 3, 7, 4])
    whole = layer(tokens).unbind()
    prefixes = [tokens.unbind()[i][: [3, 1, 0, 2][i]] for i in range(4)]
    out, cache = layer.step(Ragged.of(prefixes), Cache())
    for row, truth, prefix in zip(out, whole, prefixes, strict=True):
        close(row, truth[: len(prefix)])
    for t in range(2):
        places = [len(prefix) + t for prefix in prefixes]
        here = torch.stack([row[place] for row, place in zip(tokens, places, strict=True)])
        out, cache = layer.step(Ragged.uniform(here, 4), cache)
        close(
            out.values,
            torch.stack([truth[place] for truth, place in zip(whole, places, strict=True)]),
        )


@names
@torch.no_grad()
@pytest.mark.parametrize("start", [[2, 2, 2], [2, 0, 1]], ids=["even", "mixed"])
def test_after_reordering(name: str, start: list[int]):
    """Beams reorder and repeat rows; each row then continues as if it had been alone."""
    layer = Layer(name, causal=True)
    tokens, more = batch(start), batch([1, 1, 1, 1])
    _, cache = layer.step(tokens, Cache())
    chosen = torch.tensor([2, 0, 2, 1])
    out, _ = layer.step(more, cache.select(chosen))
    histories = [tokens.unbind()[i] for i in chosen.tolist()]
    for row, history, last in zip(out, histories, more, strict=True):
        close(row, layer(Ragged.of([torch.cat([history, last])])).values[-1:])


@names
@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("backend", ["reference", "sdpa", "flex"])
def test_result_does_not_depend_on_the_batch(name: str, causal: bool, backend: str):
    layer = Layer(name, causal=causal, backend=backend)
    tokens = batch()
    for row, alone in zip(layer(tokens), tokens, strict=True):
        close(row, layer(Ragged.of([alone])).values)


@names
@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_dense_equals_ragged(name: str, causal: bool):
    layer = Layer(name, causal=causal)
    dense = torch.randn(3, 7, WIDTH)
    embedded = layer.embed(Ragged.uniform(dense.flatten(0, 1), 3))
    ours = layer.heads(embedded.values.view(3, 7, WIDTH), mask=layer.mask)
    close(ours.flatten(0, 1), layer(Ragged.uniform(dense.flatten(0, 1), 3)).values)


@names
@torch.no_grad()
def test_order_matters_only_with_positions(name: str):
    """Without positions an encoder sees a set (the man hit the car, the car hit the man)."""
    layer = Layer(name, causal=False)
    man, hit, car = torch.randn(3, WIDTH)
    one = layer(Ragged.of([torch.stack([man, hit, car])])).values[0]
    other = layer(Ragged.of([torch.stack([man, car, hit])])).values[0]
    assert torch.allclose(one, other, atol=1e-5) == (name == "none")


@names
@torch.no_grad()
def test_only_additive_positions_are_absolute(name: str):
    """In a window of six, the last six words give the same result at any position, except with
    additive positions."""
    layer = Layer(name, causal=True)
    before, words = torch.randn(9, WIDTH), torch.randn(6, WIDTH)
    late = layer(Ragged.of([torch.cat([before, words])])).values[-1]
    early = layer(Ragged.of([words])).values[-1]
    assert torch.allclose(late, early, atol=1e-5) == (
        not issubclass(POSITIONS[name], AdditivePosition)
    )


@torch.no_grad()
def test_symmetric_alibi_ignores_the_direction():
    layer = Layer("alibi", causal=False)
    words = torch.randn(7, WIDTH)
    close(layer(Ragged.of([words])).values, layer(Ragged.of([words.flip(0)])).values.flip(0))


def test_every_position_has_its_place():
    built_in = {name: kind for name, kind in POSITIONS.items() if "tests" not in kind.__module__}
    assert {name: kind.place for name, kind in built_in.items()} == {
        "none": "none",
        "sinusoidal": "additive",
        "learned": "additive",
        "rotary": "rotary",
        "alibi": "bias",
        "distance": "bias",
        "t5": "bias",
        "shaw": "bias",
    }
