"""Who learns by which optimizer, and at what rate."""

import math

import pytest
import torch
from torch import nn

from regard.attention import SCORES, Attention
from regard.config import TransformerSettings
from regard.models import build
from regard.positions import Distance
from regard.train.optimizers import optimizers, set_rate


def test_muon_gets_the_matrices_inside_and_adamw_all_else_once_each():
    settings = TransformerSettings(
        width=8, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, position="learned"
    )
    model = build(settings, 9, 9)
    names = {id(weight): name for name, weight in model.named_parameters()}
    adamw, muon = optimizers(model, "muon", rate=0.1, decay=0.3)
    (inside,) = [[names[id(p)] for p in group["params"]] for group in muon.param_groups]
    decayed, plain = [[names[id(p)] for p in group["params"]] for group in adamw.param_groups]
    assert sorted([*inside, *decayed, *plain]) == sorted(names.values())
    assert all("coder." in name and name.endswith("weight") for name in inside)
    assert {name.split(".")[-1] for name in decayed} == {"table"}
    assert {name.split(".")[-1] for name in plain} == {"bias", "weight"}  # norms and biases
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.3, 0.0]
    (alone,) = optimizers(model, "adamw", rate=0.1, decay=0.3)
    assert sum(len(group["params"]) for group in alone.param_groups) == len(names)


class Scored(nn.Module):
    """Attention of one head with learned distances, either inside the scaling by √16 or, as if by hand, outside."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.bias = Distance(1, 16, reach=3)
        if not inside:
            self.bias.scale = 1.0
        self.attention = Attention(SCORES["scaled-dot"](1, 16), bias=self.bias, backend="reference").double()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_distances_inside_the_scaling_learn_and_decay_as_if_they_stood_outside(name):
    inside, outside = Scored(True), Scored(False)
    with torch.no_grad():
        outside.bias.table.copy_(torch.randn(1, 7, generator=torch.Generator().manual_seed(1)))
        inside.bias.table.copy_(4 * outside.bias.table)
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 1, 1, 9, 16, dtype=torch.float64).unbind()
    made = [optimizers(model, name, rate=0.1, decay=0.3) for model in (inside, outside)]
    for step in range(3):
        for model, own in zip((inside, outside), made, strict=True):
            set_rate(own, 0.1 / (step + 1))
            model.zero_grad()
            model.attention(q, k, v).sum(-1).square().sum().backward()
            for optimizer in own:
                optimizer.step()
        torch.testing.assert_close(inside.bias.table / 4, outside.bias.table, rtol=1e-6, atol=1e-7)


def test_rates_of_all_groups_follow_and_one_tensor_stays_the_one_that_a_recorded_step_reads():
    settings = TransformerSettings(
        width=32, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=8, position="distance"
    )
    made = optimizers(build(settings, 9, 9), "muon", rate=0.1, decay=0.3)
    set_rate(made, 0.5)
    assert [group["lr"] for one in made for group in one.param_groups] == pytest.approx([0.5, 0.5, 2.0, 0.5])
    for group in (group for one in made for group in one.param_groups):
        group["lr"] = torch.zeros(())
    held = [group["lr"] for one in made for group in one.param_groups]
    set_rate(made, 0.25)
    assert [math.isclose(x, y) for x, y in zip(map(float, held), (0.25, 0.25, 1.0, 0.25), strict=True)] == [True] * 4
    assert all(group["lr"] is rate for rate, group in zip(held, (g for o in made for g in o.param_groups), strict=True))
