"""Optimizers: which weights each one updates, learning rates, AdamW and Muon against torch's."""

import math

import pytest
import torch
from torch import nn

from regard.attention import SCORES, Attention
from regard.config import TransformerSettings
from regard.models import build
from regard.positions import Distance
from regard.training.fused_adamw import FusedAdamW
from regard.training.optimizers import ROUNDS, Muon, build_optimizers, orthogonalize, set_rate


def test_muon_gets_inner_matrices_and_adamw_the_rest():
    settings = TransformerSettings(
        width=8, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, position="learned"
    )
    model = build(settings, 9, 9)
    names = {id(weight): name for name, weight in model.named_parameters()}
    adamw, muon = build_optimizers(model, "muon", rate=0.1, decay=0.3)
    (inside,) = [[names[id(p)] for p in group["params"]] for group in muon.param_groups]
    decayed, plain = [[names[id(p)] for p in group["params"]] for group in adamw.param_groups]
    assert sorted([*inside, *decayed, *plain]) == sorted(names.values())
    assert all("coder." in name and name.endswith("weight") for name in inside)
    assert {name.split(".")[-1] for name in decayed} == {"table"}
    assert {name.split(".")[-1] for name in plain} == {"bias", "weight"}  # norms and biases
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.3, 0.0]
    (alone,) = build_optimizers(model, "adamw", rate=0.1, decay=0.3)
    assert sum(len(group["params"]) for group in alone.param_groups) == len(names)


class Scored(nn.Module):
    """One attention head with learned distances, inside or outside the scaling by √16."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.bias = Distance(1, 16, max_distance=3)
        if not inside:
            self.bias.scale = 1.0
        self.attention = Attention(
            SCORES["scaled-dot"](1, 16), bias=self.bias, backend="reference"
        ).double()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_scaled_distance_tables_learn_as_unscaled_ones(name):
    inside, outside = Scored(True), Scored(False)
    with torch.no_grad():
        outside.bias.table.copy_(torch.randn(1, 7, generator=torch.Generator().manual_seed(1)))
        inside.bias.table.copy_(4 * outside.bias.table)
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 1, 1, 9, 16, dtype=torch.float64).unbind()
    made = [build_optimizers(model, name, rate=0.1, decay=0.3) for model in (inside, outside)]
    for step in range(3):
        for model, own in zip((inside, outside), made, strict=True):
            set_rate(own, 0.1 / (step + 1))
            model.zero_grad()
            model.attention(q, k, v).sum(-1).square().sum().backward()
            for optimizer in own:
                optimizer.step()
        torch.testing.assert_close(inside.bias.table / 4, outside.bias.table, rtol=1e-6, atol=1e-7)


def test_set_rate_updates_all_groups_in_place():
    settings = TransformerSettings(
        width=32, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, position="distance"
    )
    made = build_optimizers(build(settings, 9, 9), "muon", rate=0.1, decay=0.3)
    set_rate(made, 0.5)
    assert [group["lr"] for one in made for group in one.param_groups] == pytest.approx(
        [0.5, 0.5, 2.0, 0.5]
    )
    for group in (group for one in made for group in one.param_groups):
        group["lr"] = torch.zeros(())
    held = [group["lr"] for one in made for group in one.param_groups]
    set_rate(made, 0.25)
    assert [
        math.isclose(x, y) for x, y in zip(map(float, held), (0.25, 0.25, 1.0, 0.25), strict=True)
    ] == [True] * 4
    assert all(
        group["lr"] is rate
        for rate, group in zip(held, (g for o in made for g in o.param_groups), strict=True)
    )


def test_adamw_is_torchs_bit_for_bit():
    starts = [torch.randn(7, 5), torch.randn(9), torch.randn(4, 4).double()]
    ours, theirs = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    options = {"betas": (0.8, 0.95), "eps": 1e-6}
    made = [
        kind([{"params": own[:1], "weight_decay": 0.3}, {"params": own[1:]}], lr=0.1, **more)
        for kind, own, more in (
            (FusedAdamW, ours, {**options, "weight_decay": 0.01}),
            (torch.optim.AdamW, theirs, {**options, "weight_decay": 0.01, "fused": True}),
        )
    ]
    for step in range(6):
        rate = 0.1 / (step + 1)
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        if step == 2:
            ours[1].grad = theirs[1].grad = None  # this one waits, and its step is not counted
        if step == 4:  # each continues with the state of the other
            states = [optimizer.state_dict()["state"] for optimizer in made]
            for optimizer, state in zip(made, reversed(states), strict=True):
                optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        for optimizer in made:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other), step
    assert not any(torch.equal(one, start) for one, start in zip(ours, starts, strict=True))


@pytest.mark.parametrize("shape", [(8, 8), (4, 16), (16, 4), (3, 200)])
def test_orthogonalize_keeps_directions(shape):
    matrix = torch.randn(shape, dtype=torch.float64) * torch.linspace(1, 3, shape[1])
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = (
        left.mT @ orthogonalize(matrix[None])[0] @ right.mT
    )  # diagonal when the directions are the same
    assert values.max() / values.min() > 1.2
    assert turned.diagonal().min() > 0.6
    assert turned.diagonal().max() < 1.3
    assert (turned - turned.diagonal().diag()).abs().max() < 1e-6


def test_orthogonalize_normalizes_a_vector():
    row = torch.tensor([[3.0, 4.0]])
    (ours,) = orthogonalize(row[None])
    assert 0.6 < ours.norm() < 1.3
    torch.testing.assert_close(ours / ours.norm(), torch.tensor([[0.6, 0.8]]))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch, on a CPU without bfloat16
@pytest.mark.parametrize("shape", [(12, 12), (6, 20), (20, 6)])
def test_muon_matches_torch_within_bfloat16(shape):
    start = torch.randn(shape)
    ours, theirs = (nn.Parameter(start.clone()) for _ in range(2))
    options = {"lr": 0.1, "weight_decay": 0.05, "momentum": 0.95}
    mine = Muon([ours], **options)
    other = torch.optim.Muon([theirs], **options, ns_steps=ROUNDS, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        gradient = torch.randn(shape)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        other.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.02 * moved
    assert moved > 0.1


def test_batched_updates_equal_single_updates():
    starts = [torch.randn(shape) for shape in [(6, 4), (4, 6), (6, 4), (5, 5)]]
    together, alone = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    optimizers = [Muon(together, lr=0.1), *(Muon([weight], lr=0.1) for weight in alone)]
    for _ in range(2):
        for ours, other in zip(together, alone, strict=True):
            ours.grad = torch.randn_like(ours) * 10 ** torch.randn(())  # each is sized by itself
            other.grad = ours.grad.clone()
        together[2].grad = alone[2].grad = None  # this one waits
        for optimizer in optimizers:
            optimizer.step()
    for ours, other, start in zip(together, alone, starts, strict=True):
        torch.testing.assert_close(ours, other)
        assert torch.equal(ours, start) == (ours is together[2])


def test_weight_decay_alone_shrinks_by_the_rate_times_decay():
    weight = nn.Parameter(torch.full((2, 2), 2.0))
    weight.grad = torch.zeros(2, 2)
    Muon([weight], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(weight.data, torch.full((2, 2), 2 * (1 - 0.05)))


def test_muon_minimizes_a_quadratic():
    goal, weight = torch.randn(6, 4), nn.Parameter(torch.zeros(6, 4))
    optimizer = Muon([weight], lr=0.1)
    losses = []
    for step in range(100):
        optimizer.param_groups[0]["lr"] = 0.2 * (1 - step / 100)
        optimizer.zero_grad()
        loss = (weight - goal).square().sum()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[5] < losses[0]
    assert losses[-1] < 0.01 * losses[0]


def test_an_update_has_the_size_that_adamw_would_have():
    weight = nn.Parameter(torch.zeros(32, 64))
    weight.grad = torch.randn(32, 64)
    Muon([weight], lr=1.0).step()
    assert (
        0.12 < weight.square().mean().sqrt() < 0.26
    )  # 0.2 for a matrix exactly orthogonal (Liu et al. 2025, §2.2)
    assert math.isclose(0.2 * math.sqrt(64) * math.sqrt(32 / (32 * 64)), 0.2)
