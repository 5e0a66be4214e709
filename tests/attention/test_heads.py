"""MultiHead: heads by hand, free widths, cached decoding, and errors for sizes that do not fit."""

import math

import pytest
import torch
from torch import nn

from regard import Cache, MultiHead, Ragged, causal
from regard.errors import ShapeError, UnknownName
from regard.positions import Rotary

WIDTH, HEADS, GROUPS, CONTEXT, ATTENTION, VALUES, OUT = 10, 6, 3, 7, 12, 24, 5


def plain(width: int, heads: int, **options: object) -> MultiHead:
    """Identity projections, so that only the split into heads remains."""
    module = MultiHead(width, heads, biases=False, **options).double()
    with torch.no_grad():
        for projection in (module.queries, module.keys, module.values, module.out):
            projection.weight.copy_(torch.eye(width))
    return module


def test_each_head_uses_its_slice_of_the_vector():
    """Two heads of dim 1, two words. Head 1 has coordinates (0, ln 3), head 2 (0, ln 2)."""
    x = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]], dtype=torch.float64)
    module = plain(2, 2)
    with torch.no_grad():
        module.keys.weight.copy_(torch.diag(torch.tensor([math.log(3), math.log(2)])))
    # Word 1, query (0, 1): head 1 weighs both words ½; head 2 has keys (ln 2, 0): weights ⅔, ⅓ of
    # values (1, 0).
    # Word 2, query (1, 0): head 1 has keys (0, ln 3): weights ¼, ¾ of values (0, 1); head 2
    # weighs both ½.
    expected = torch.tensor([[[1 / 2, 2 / 3], [3 / 4, 1 / 2]]], dtype=torch.float64)
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_neighbouring_heads_share_a_key_head(backend: str):
    """Shared key heads equal keys that are repeated per head, tested by copying the weights."""
    grouped = MultiHead(
        WIDTH, HEADS, attention=ATTENTION, values=VALUES, kv_heads=GROUPS, backend=backend
    )
    full = MultiHead(WIDTH, HEADS, attention=ATTENTION, values=VALUES, backend=backend)
    state = grouped.state_dict()
    for name in ("keys.weight", "keys.bias", "values.weight", "values.bias"):
        groups = state[name].unflatten(0, (GROUPS, -1))
        state[name] = torch.stack(
            [groups[head * GROUPS // HEADS] for head in range(HEADS)]
        ).flatten(0, 1)
    full.load_state_dict(state)
    x = torch.randn(2, 4, WIDTH)
    torch.testing.assert_close(grouped(x, mask=causal), full(x, mask=causal))


def test_widths_are_free():
    module = MultiHead(
        WIDTH,
        HEADS,
        context=CONTEXT,
        attention=ATTENTION,
        values=VALUES,
        out=OUT,
        kv_heads=GROUPS,
        biases=True,
    )
    assert {name: tuple(part.shape) for name, part in module.named_parameters()} == {
        "queries.weight": (12, 10),
        "queries.bias": (12,),
        "keys.weight": (6, 7),  # 3 groups of dim 2
        "keys.bias": (6,),
        "values.weight": (12, 7),  # 3 groups of 4
        "values.bias": (12,),
        "out.weight": (5, 24),
        "out.bias": (5,),
    }
    x, z = torch.randn(2, 4, WIDTH), torch.randn(2, 8, CONTEXT)
    assert module(x, z).shape == (2, 4, OUT)
    ragged = module(Ragged.of(list(x)), Ragged.of(list(z)))
    torch.testing.assert_close(ragged.values.view(2, 4, OUT), module(x, z))


def test_biases_can_be_disabled():
    assert [name for name, _ in MultiHead(WIDTH, 2, biases=False).named_parameters()] == [
        "queries.weight",
        "keys.weight",
        "values.weight",
        "out.weight",
    ]


@torch.no_grad()
def test_cross_attention_from_a_cache():
    module = MultiHead(WIDTH, 2, context=CONTEXT)
    x = Ragged.of([torch.randn(n, WIDTH) for n in (1, 3, 2)])
    z = Ragged.of([torch.randn(n, CONTEXT) for n in (4, 0, 5)])
    memory = module.extend_cache(z)
    assert memory.lengths.tolist() == [4, 0, 5]
    torch.testing.assert_close(module.attend_cached(x, memory).values, module(x, z).values)


TURNS = pytest.mark.parametrize("turn", [None, Rotary(6)], ids=["still", "rotary"])


@TURNS
@torch.no_grad()
def test_steps_of_any_size_equal_the_full_pass(turn: Rotary | None):
    module = MultiHead(WIDTH, 2, attention=ATTENTION, kv_heads=1, rotation=turn)
    x = torch.randn(2, 9, WIDTH)
    cache, parts = Cache(), []
    for piece in x.split([1, 4, 1, 3], dim=1):
        part, cache = module.step(piece, cache, mask=causal)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), module(x, mask=causal))


@TURNS
@torch.no_grad()
def test_rows_advance_independently(turn: Rotary | None):
    module = MultiHead(WIDTH, 2, attention=ATTENTION, kv_heads=1, rotation=turn)
    whole = [torch.randn(n, WIDTH) for n in (5, 4, 7)]
    cache, parts = Cache(), []
    for sizes in ([2, 0, 1], [2, 3, 5]):
        starts = [0, 0, 0] if cache.lengths is None else cache.lengths.tolist()
        piece = Ragged.of(
            [x[start : start + n] for x, start, n in zip(whole, starts, sizes, strict=True)]
        )
        part, cache = module.step(piece, cache, mask=causal)
        parts.append(part.unbind())
    part, cache = module.step(
        torch.stack([x[-1:] for x in whole]), cache, mask=causal
    )  # one more each, dense
    parts.append(part.unbind())
    for row, expected in zip(
        zip(*parts, strict=True), module(Ragged.of(whole), mask=causal), strict=True
    ):
        torch.testing.assert_close(torch.cat(row), expected)
    assert cache.lengths.tolist() == [5, 4, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "attention = 10 cannot be split into 3 equal parts"),
        ({"heads": 5, "attention": 12}, "attention = 12 cannot be split into 5 equal parts"),
        ({"heads": 5, "values": 12}, "values = 12 cannot be split into 5 equal parts"),
        ({"heads": 5, "kv_heads": 2}, "heads = 5 cannot be split into 2 equal parts"),
        ({"heads": 2, "kv_heads": 4}, "heads = 2 cannot be split into 4 equal parts"),
        ({"heads": 0}, "heads and kv_heads must be at least 1; got heads=0, kv_heads=None"),
        ({"heads": -2}, "heads and kv_heads must be at least 1; got heads=-2, kv_heads=None"),
        (
            {"heads": 2, "kv_heads": 0},
            "heads and kv_heads must be at least 1; got heads=2, kv_heads=0",
        ),
    ],
)
def test_indivisible_sizes_are_named(options: dict[str, int], message: str):
    with pytest.raises(ShapeError, match=f"^{message}$"):
        MultiHead(WIDTH, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "scaleddot"}, r"unknown score 'scaleddot'; did you mean 'scaled-dot'\?"),
        ({"normaliser": "spasemax"}, r"unknown normaliser 'spasemax'; did you mean 'sparsemax'\?"),
        ({"backend": "refrence"}, r"unknown backend 'refrence'; did you mean 'reference'\?"),
        (
            {"backend": "cuda"},
            "unknown backend 'cuda'; choose from 'flex', 'reference', 'sdpa', 'triton'",
        ),
    ],
)
def test_unknown_parts_suggest_the_nearest(options: dict[str, str], message: str):
    with pytest.raises(UnknownName, match=f"^{message}$"):
        MultiHead(WIDTH, 2, **options)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_other_widths_are_an_error(ragged: bool):
    module = MultiHead(WIDTH, 2, context=CONTEXT)
    x, z = torch.randn(2, 4, WIDTH), torch.randn(2, 3, CONTEXT)
    for queries, context, wanted, got in ((z, z, 10, 7), (x, x, 7, 10), (x, None, 7, 10)):
        given = [y if y is None or not ragged else Ragged.of(list(y)) for y in (queries, context)]
        with pytest.raises(
            ShapeError, match=f"^this attention takes vectors of width {wanted}; got width {got}$"
        ):
            module(*given)


def test_rotation_of_another_dim_is_an_error():
    with pytest.raises(ShapeError, match=r"^Rotary was built for dim 8; got vectors of dim 6$"):
        MultiHead(12, 2, rotation=Rotary(8))(torch.randn(2, 5, 12))


def test_dense_queries_with_ragged_context_is_an_error():
    with pytest.raises(
        ShapeError,
        match=r"^queries, keys and values must be all dense or all ragged; got dense, ragged",
    ):
        MultiHead(WIDTH, 2)(torch.randn(2, 4, WIDTH), Ragged.of([torch.randn(3, WIDTH)] * 2))


class Adapted(nn.Linear):
    """A linear layer with a low-rank adapter."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features, base.bias is not None)
        self.load_state_dict(base.state_dict())
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return super().forward(x) + self.up(self.down(x))


@pytest.mark.parametrize("role", ["queries", "keys", "values", "out"])
def test_adapter_on_any_projection_is_used_and_trained(role: str):
    torch.manual_seed(0)
    heads, x = MultiHead(16, 4), torch.randn(2, 5, 16)
    before = heads(x)
    adapted = Adapted(getattr(heads, role))
    setattr(heads, role, adapted)
    after = heads(x)
    assert not torch.allclose(before, after, atol=1e-4)
    after.sum().backward()
    assert adapted.down.weight.grad.abs().sum() > 0
    with torch.no_grad():
        adapted.up.weight.zero_()
    torch.testing.assert_close(heads(x), before)


def test_hook_on_a_projection_is_called():
    heads, shapes = MultiHead(16, 4), []
    heads.keys.register_forward_hook(lambda layer, given, output: shapes.append(output.shape))
    heads(torch.randn(1, 3, 16))
    assert shapes == [(1, 3, 16)]
