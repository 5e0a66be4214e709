"""Settings of a Transformer's layers, against torch, Hugging Face and sums by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from regard.attention import MultiHead
from regard.config import TransformerSettings
from regard.errors import RegardError
from regard.models import Model, build
from regard.models.layers import FeedForward
from regard.models.parts import Embedding, Output
from regard.ragged import Ragged

SIZES = {
    "position": "sinusoidal",
    "width": 6,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "ffn_width": 5,
}
HF_NAMES = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
HF_GATES = {"swiglu": "silu", "geglu": "gelu_new"}


def settings(**values: object) -> TransformerSettings:
    return TransformerSettings(**{**SIZES, **values})


def model(source: int = 9, target: int = 9, **values: object) -> Model:
    return build(settings(**values), source, target)


def names(model: Model) -> set[str]:
    return {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("activation", [*HF_NAMES, *HF_GATES])
@pytest.mark.parametrize("biases", [True, False])
@torch.no_grad()
def test_feed_forward_is_that_of_hugging_face(activation: str, biases: bool):
    torch.manual_seed(1)
    part = FeedForward(settings(activation=activation, biases=biases)).double()
    x = 3 * torch.randn(7, 6, dtype=torch.float64)
    rows = part.inner(x)
    if activation in HF_GATES:
        assert part.inner.out_features == 10
        inner = ACT2FN[HF_GATES[activation]](rows[:, :5]) * rows[:, 5:]
    else:
        inner = ACT2FN[HF_NAMES[activation]](rows)
    torch.testing.assert_close(part(x), part.outer(inner))
    assert (part.inner.bias is None) == (part.outer.bias is None) == (not biases)


@pytest.mark.parametrize(("kind", "default"), [("layer", 1e-5), ("rms", 1e-6)])
@torch.no_grad()
def test_norm_eps_is_added_to_the_variance(kind: str, default: float):
    x = 1e-3 * torch.randn(4, 6, dtype=torch.float64)
    for eps in (None, 0.25):
        norms = [part for part in model(norm=kind, norm_eps=eps, embedding_norm=True).modules()
                 if isinstance(part, nn.LayerNorm | nn.RMSNorm)]  # fmt: skip
        assert len(norms) == 9  # 5 sublayers, 2 stacks, 2 embeddings
        centred = x - x.mean(1, keepdim=True) if kind == "layer" else x
        expected = centred / (centred.square().mean(1, keepdim=True) + (eps or default)).sqrt()
        for part in norms:
            torch.testing.assert_close(part.double()(x), expected)


@torch.no_grad()
def test_embedding_scale_and_norm_by_hand():
    embedding = Embedding(3, 2, scale=0.5, norm=nn.LayerNorm(2, eps=0.0))
    embedding.table.copy_(torch.tensor([[0.0, 0.0], [2.0, 6.0], [1.0, -1.0]]))
    embedding.norm.weight.copy_(torch.tensor([10.0, 1.0]))
    ids = Ragged.of([torch.tensor([1]), torch.tensor([2])])
    assert embedding(ids).values.tolist() == [[-10.0, 1.0], [10.0, -1.0]]
    embedding.norm = None
    assert embedding(ids).values.tolist() == [[1.0, 3.0], [0.5, -0.5]]


def test_embedding_scale_defaults_to_the_root_of_the_width():
    assert model().source.scale == model().target.scale == math.sqrt(6)
    scaled = model(embedding_scale=1.0)
    assert scaled.source.scale == scaled.target.scale == 1.0


@torch.no_grad()
def test_output_bias_by_hand():
    output = Output(3, 2, bias=True)
    output.table.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    output.bias.copy_(torch.tensor([0.0, 10.0, -5.0]))
    assert output(torch.tensor([[2.0, 3.0]])).tolist() == [[2.0, 13.0, 0.0]]
    assert "output.bias" in names(model(output_bias=True))
    assert model(output_bias=True).output_table is None  # a fused loss would leave it out


def test_the_size_of_a_head_is_free():
    wide = model(dim=5, kv_heads=1)
    parts = [part for part in wide.modules() if isinstance(part, MultiHead)]
    assert len(parts) == 3
    for part in parts:
        assert part.queries.weight.shape == (10, 6)
        assert part.keys.weight.shape == part.values.weight.shape == (5, 6)
        assert part.out.weight.shape == (6, 10)
        assert part.attention.score.dim == 5
    with pytest.raises(RegardError, match=r"^model\.width = 6 cannot .* set model\.dim"):
        model(heads=4)
    assert model(heads=4, dim=2).encoder[0].self_attention.dim == 2


def test_only_norms_keep_biases():
    assert {name for name in names(model(biases=False)) if name.endswith("bias")} == {
        name for name in names(model()) if name.endswith("norm.bias")
    }
    rms = model(biases=False, norm="rms", position="t5")
    assert {name for name in names(rms) if name.endswith("bias")} == set()


def test_tied_inputs_leave_the_output_its_own_table():
    tied = model(tie_embeddings="inputs")
    assert tied.source.table is tied.target.table
    assert tied.output.table is not tied.target.table
    with pytest.raises(RegardError, match=r"^model\.tie_embeddings = 'inputs' needs one vocab"):
        model(8, 9, tie_embeddings="inputs")


def logits(model: Model) -> Tensor:
    source, prefix = (Ragged.of([torch.tensor(ids)]) for ids in ([3, 4, 2], [1, 5]))
    return model.eval()(source, prefix).values


@pytest.mark.parametrize(
    "change",
    [
        {"activation": "gelu-tanh"},
        {"activation": "geglu"},
        {"embedding_norm": True},
        {"embedding_scale": 0.5},
        {"norm_eps": 0.5},
        {"dim": 4},
        {"tie_embeddings": "inputs"},
    ],
    ids=str,
)
@torch.no_grad()
def test_every_setting_changes_what_a_model_computes(change: dict):
    found = []
    for values in ({}, change):
        torch.manual_seed(5)
        found.append(logits(model(**values)))
    assert not torch.allclose(*found, atol=1e-4)
