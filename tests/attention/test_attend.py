"""attend: parts by name, the fastest machine that can, and the place of the first NaN."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import Ragged, attend, causal, debug
from regard.attention import NORMALISERS, SCORES, Attention, attend_columns, backends
from regard.attention.scores import Additive, General, ScaledDot
from regard.errors import NotANumber, RegardError
from regard.positions import Distance

BATCH, HEADS, QUERIES, KEYS, DIM, OUT = 2, 3, 5, 7, 4, 6


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((QUERIES, DIM), (KEYS, DIM), (KEYS, OUT))
    q, k, v = (torch.randn(BATCH, HEADS, *size) for size in sizes)
    return q, k, v


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call of torch's fused kernel, as it happens."""
    seen: list[str] = []
    kernel = F.scaled_dot_product_attention

    def spy(*arguments: object, **options: object) -> Tensor:
        seen.append("fused")
        return kernel(*arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return seen


FUSED = [{}, {"score": "dot"}, {"score": "cosine"}, {"mask": causal}, {"dropout": 0.5}]
EAGER = [{"normaliser": "sparsemax"}, {"normaliser": "none"}, {"score": Additive(HEADS, DIM)}]


@pytest.mark.parametrize("parts", FUSED, ids=str)
def test_auto_uses_a_fused_backend_where_possible(calls: list[str], parts: dict[str, object]):
    attend(*inputs(), **parts)
    assert calls == ["fused"]


@pytest.mark.parametrize("parts", EAGER, ids=str)
def test_auto_falls_back_to_the_reference(calls: list[str], parts: dict[str, object]):
    attend(*inputs(), **parts)
    assert calls == []


def test_explicit_reference_is_never_fused(calls: list[str]):
    attend(*inputs(), backend="reference")
    assert calls == []


def test_auto_chooses_the_fastest_supported_backend():
    q, _, _ = inputs()
    names = {
        name: backends.choose_backend(Attention(kind(HEADS, DIM)), q)
        for name, kind in SCORES.items()
    }
    assert names == {
        name: "reference" if name in ("additive", "gaussian") else "sdpa" for name in SCORES
    }


@pytest.mark.parametrize(("name", "kind"), [("general", General), ("additive", Additive)])
def test_score_with_parameters_must_be_an_instance(name: str, kind: type):
    made = rf"{kind.__name__}\(heads, dim\)"
    message = rf"^score {kind.__name__} has parameters; create it once, {made}, and pass it$"
    with pytest.raises(RegardError, match=message):
        attend(*inputs(), score=name)
    assert attend(*inputs(), score=kind(HEADS, DIM)).shape == (BATCH, HEADS, QUERIES, OUT)


def test_columns_by_hand():
    """Two queries, three keys of dim 1: Kᵀ Q = [[0, 0], [0, a], [0, b]], e^a = 2, e^b = 5."""
    q = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    k = torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64).log()
    v = torch.tensor([[8.0, 0.0, 0.0], [0.0, 16.0, -8.0]], dtype=torch.float64)
    expected = torch.tensor(
        [[8 / 3, 1.0], [8 / 3, -1.0]], dtype=torch.float64
    )  # weights ⅓ ⅓ ⅓ and ⅛ ²⁄₈ ⅝
    torch.testing.assert_close(attend_columns(q, k, v), expected)


def nan_place(**options: object) -> str:
    q, k, v = inputs()
    k[1, 2, 4, 3] = torch.nan
    with pytest.raises(NotANumber) as caught, debug():
        attend(q, k, v, **options)
    return str(caught.value)


WAY_OUT = "check for NaN or overflow in what computed these queries and keys"


def test_debug_locates_the_first_nan():
    expected = f"scores are NaN in 5 places, first at batch 1, head 2, query 0, key 4; {WAY_OUT}"
    assert nan_place() == nan_place(backend="reference") == expected


def test_debug_ignores_masked_nan():
    expected = f"scores are NaN in 1 places, first at batch 1, head 2, query 4, key 4; {WAY_OUT}"
    assert nan_place(mask=causal) == expected


def test_debug_locates_nan_in_a_ragged_batch():
    q, k, v = (Ragged.of([torch.randn(n, HEADS, DIM) for n in (2, 0, 4)]) for _ in range(3))
    q.values[3, 1, 0] = torch.nan  # the second token of the third sequence
    message = f"^scores are NaN in 4 places, first at batch 2, head 1, query 1, key 0; {WAY_OUT}$"
    with pytest.raises(NotANumber, match=message), debug():
        attend(q, k, v)


def test_debug_names_the_stage_of_the_nan():
    q, k, v = inputs()
    bias = Distance(HEADS, DIM, max_distance=2)
    with torch.no_grad():
        bias.table[1, 0] = torch.nan  # of keys two or more before the query
    message = "^biased are NaN in 12 places, first at batch 0, head 1, query 2, key 0;"
    with pytest.raises(NotANumber, match=message), debug():
        attend(q, k, v, bias=bias)
    q[0, 0, 3], k[0, 0, 6] = (
        1e30,
        1e30,
    )  # a score too large for float32 is infinite; softmax makes it NaN
    message = "^weights are NaN in .* places, first at batch 0, head 0, query 3, key"
    with pytest.raises(NotANumber, match=message), debug():
        attend(q, k, v)


def test_nan_raises_only_inside_debug():
    q, k, v = inputs()
    k[1, 2, 4] = torch.nan
    with debug():
        pass
    assert attend(q, k, v).isnan().any()
    with debug():
        assert attend(q, k.nan_to_num(0), v).isfinite().all()


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_intermediates_without_keys_are_empty(normaliser: str):
    q, k, v = inputs()
    seen = Attention(ScaledDot(HEADS, DIM), normaliser=normaliser).intermediates(
        q, k[:, :, :0], v[:, :, :0]
    )
    assert seen.weights.shape == (BATCH, HEADS, QUERIES, 0)
    assert seen.context.shape == (BATCH, HEADS, QUERIES, OUT)
    assert seen.context.eq(0).all()


def test_unknown_backend_set_later_is_an_error():
    attention = Attention(ScaledDot(HEADS, DIM))
    attention.backend = "flax"
    with pytest.raises(RegardError, match=r"^unknown backend 'flax'; did you mean 'flex'\?$"):
        attention(*inputs())


def test_intermediates_in_training_are_those_before_dropout():
    attention, (q, k, v) = Attention(ScaledDot(HEADS, DIM), dropout=0.5).train(), inputs()
    results = attention.intermediates(q, k, v)
    torch.testing.assert_close(results.context, results.weights @ v)


def test_debug_does_not_change_dropout():
    attention = Attention(ScaledDot(HEADS, DIM), dropout=0.5, backend="reference").train()
    q, k, v = inputs()
    torch.manual_seed(1)
    expected = attention(q, k, v)
    torch.manual_seed(1)
    with debug():
        assert torch.equal(attention(q, k, v), expected)


@pytest.mark.parametrize("normaliser", ["entmax", "sparsemax"])
def test_debug_accepts_a_batch_without_keys(normaliser: str):
    q, k, v = inputs()
    with debug():
        assert attend(q, k[:, :, :0], v[:, :, :0], normaliser=normaliser).eq(0).all()


def test_intermediates_check_the_size_of_the_score():
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(RegardError, match="ScaledDot was built for 2 heads of 16"):
        Attention(ScaledDot(2, 16)).intermediates(x, x, x)
