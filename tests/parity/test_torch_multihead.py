"""MultiHead against torch.nn.MultiheadAttention: outputs, weights and gradients."""

import pytest
import torch
from torch import Tensor, nn

from regard import MultiHead, Ragged, causal, window
from regard.attention import Mask, everything

WIDTH, HEADS, CONTEXT = 12, 3, 10
LENGTHS = [4, 7, 1]  # of one batch: torch pads it to 7 and hides the rest
BOTH = pytest.mark.parametrize("biases", [True, False], ids=["biases", "no-biases"])
BACKENDS = pytest.mark.parametrize("backend", ["reference", "sdpa"])


def theirs(biases: bool, context: int = WIDTH) -> nn.MultiheadAttention:
    module = nn.MultiheadAttention(
        WIDTH, HEADS, bias=biases, kdim=context, vdim=context, batch_first=True
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(
                std=0.5
            )  # torch starts its biases at zero, where they would test nothing
    return module.double()


def parts(module: nn.MultiheadAttention) -> dict[str, Tensor | None]:
    """Torch's weights under our names; it packs the projections when their widths agree."""
    if module.in_proj_weight is None:
        matrices = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    else:
        matrices = module.in_proj_weight.chunk(3)
    vectors = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    named = {
        f"{name}.weight": matrix
        for name, matrix in zip(("queries", "keys", "values"), matrices, strict=True)
    }
    named |= {
        f"{name}.bias": vector
        for name, vector in zip(("queries", "keys", "values"), vectors, strict=True)
    }
    named |= {"out.weight": module.out_proj.weight, "out.bias": module.out_proj.bias}
    return {name: part for name, part in named.items() if part is not None}


def converted(module: nn.MultiheadAttention, backend: str) -> MultiHead:
    context = module.kdim
    ours = MultiHead(
        WIDTH, HEADS, context=context, biases=module.in_proj_bias is not None, backend=backend
    ).double()
    ours.load_state_dict(
        {name: part.detach() for name, part in parts(module).items()}
    )  # strict: no part is left over
    return ours


def hidden(mask: Mask, rows: int, columns: int) -> Tensor:
    """Our mask in torch's convention, where True masks; written by hand from each definition."""
    apart = torch.arange(rows)[:, None] - torch.arange(columns)
    may = {everything: apart == apart, causal: apart >= 0, window(2): apart.abs() < 2}
    return ~may[mask]


@BOTH
@BACKENDS
@pytest.mark.parametrize("mask", [everything, causal, window(2)], ids=str)
def test_self_attention(biases: bool, backend: str, mask: Mask):
    module = theirs(biases)
    x = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    expected, _ = module(x, x, x, attn_mask=hidden(mask, 7, 7), need_weights=False)
    torch.testing.assert_close(converted(module, backend)(x, mask=mask), expected)


@BOTH
@BACKENDS
def test_attention_to_a_context_of_another_width(biases: bool, backend: str):
    module = theirs(biases, CONTEXT)
    x, z = (
        torch.randn(2, 5, WIDTH, dtype=torch.float64),
        torch.randn(2, 7, CONTEXT, dtype=torch.float64),
    )
    expected, _ = module(x, z, z)
    torch.testing.assert_close(converted(module, backend)(x, z), expected)


@BACKENDS
@pytest.mark.parametrize("mask", [everything, causal], ids=str)
def test_ragged_equals_key_padding_mask(backend: str, mask: Mask):
    module = theirs(True)
    x = Ragged.of([torch.randn(length, WIDTH, dtype=torch.float64) for length in LENGTHS])
    padded = nn.utils.rnn.pad_sequence(x.unbind(), batch_first=True, padding_value=1e3)
    padding = torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS)[:, None]
    expected, _ = module(
        padded, padded, padded, key_padding_mask=padding, attn_mask=hidden(mask, 7, 7)
    )
    for ours, row, length in zip(
        converted(module, backend)(x, mask=mask), expected, LENGTHS, strict=True
    ):
        torch.testing.assert_close(ours, row[:length])


@BACKENDS
def test_ragged_context_equals_key_padding_mask(backend: str):
    module, lengths = theirs(True, CONTEXT), [2, 3, 5]
    x = Ragged.of([torch.randn(length, WIDTH, dtype=torch.float64) for length in lengths])
    z = Ragged.of([torch.randn(length, CONTEXT, dtype=torch.float64) for length in LENGTHS])
    queries, context = (
        nn.utils.rnn.pad_sequence(batch.unbind(), batch_first=True) for batch in (x, z)
    )
    padding = torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS)[:, None]
    expected, _ = module(queries, context, context, key_padding_mask=padding)
    for ours, row, length in zip(converted(module, backend)(x, z), expected, lengths, strict=True):
        torch.testing.assert_close(ours, row[:length])


def test_weights_of_each_head_match():
    module = theirs(True, CONTEXT)
    x, z = (
        torch.randn(2, 5, WIDTH, dtype=torch.float64),
        torch.randn(2, 7, CONTEXT, dtype=torch.float64),
    )
    ours = converted(module, "reference")
    queries, keys, values = (
        project(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for project, y in ((ours.queries, x), (ours.keys, z), (ours.values, z))
    )
    _, expected = module(x, z, z, average_attn_weights=False)
    torch.testing.assert_close(
        ours.attention.intermediates(queries, keys, values).weights, expected
    )


@BOTH
@BACKENDS
def test_gradients_of_inputs_and_weights_match(biases: bool, backend: str):
    module = theirs(biases, CONTEXT)
    ours = converted(module, backend)
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    z = torch.randn(2, 7, CONTEXT, dtype=torch.float64, requires_grad=True)
    towards = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    leaves = [x, z, *module.parameters()]
    wanted = torch.autograd.grad(module(x, z, z, need_weights=False)[0], leaves, towards)
    with torch.no_grad():  # the gradients in place of the weights, to be read under our names
        for parameter, gradient in zip(module.parameters(), wanted[2:], strict=True):
            parameter.copy_(gradient)
    expected = {"x": wanted[0], "z": wanted[1], **parts(module)}
    names = ["x", "z", *(name for name, _ in ours.named_parameters())]
    assert set(names) == set(expected)
    for name, gradient in zip(
        names, torch.autograd.grad(ours(x, z), [x, z, *ours.parameters()], towards), strict=True
    ):
        torch.testing.assert_close(
            gradient, expected[name], msg=lambda text, name=name: f"{name}: {text}"
        )
