"""Tracing of replaced parts: masks, user-defined parts, and modules that cannot be traced.

The contract of every part in a registry is in contracts/test_traces.py.
"""

import math
import re

import pytest
import torch
from torch import nn

import regard
from regard.attention import (
    Attention,
    Cosine,
    MultiHead,
    ScaledDot,
    causal,
    prefix,
    window,
)
from regard.attention import normalisers as known_normalisers
from regard.errors import RegardError
from regard.models.recurrent import SourceAttention
from regard.pipeline import Pipeline
from regard.positions import Alibi
from regard.trace import record, register
from regard.trace.record import PROGRAMS
from tests.contracts.model_cases import Flipped, Halved, Manhattan, Quadratic, Ramp
from tests.contracts.test_traces import assert_follows_model
from tests.trace.random_models import random_model

SOURCE, TARGET = "zebra", "AH B N"


def attentions(pipeline: Pipeline) -> list[nn.Module]:
    """Every module that owns an attention."""
    owners = (MultiHead, SourceAttention)
    return [part for part in pipeline.model.modules() if isinstance(part, owners)]


def use_own_parts(pipeline: Pipeline) -> None:
    """Replace every part of a Transformer by one that a user wrote."""
    for part in attentions(pipeline):
        score = Manhattan(part.heads, part.dim)
        part.attention = Attention(score, bias=Halved(), normaliser=Quadratic())
        part.rotation = Flipped()
    pipeline.model.source.position = Ramp(12)


def encoder_attentions(pipeline: Pipeline) -> list[MultiHead]:
    return [layer.self_attention for layer in pipeline.model.encoder]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "mask", [window(1), window(2), causal & window(2), causal | prefix(2), prefix(0)], ids=str
)
def test_masks_of_self_attention(stack, mask):
    pipeline = random_model("rotary")
    for layer in getattr(pipeline.model, stack):
        layer.mask = mask
    trace = assert_follows_model(pipeline, SOURCE, TARGET)
    name = "enc.0.self" if stack == "encoder" else "dec.0.self"
    masked = trace[f"{name}.masked"][0]
    for query in range(len(masked)):
        for key in range(len(masked)):
            allowed = {
                "window(1)": query == key,
                "window(2)": abs(query - key) < 2,
                "(causal & window(2))": 0 <= query - key < 2,
                "(causal | prefix(2))": key <= query or key < 2,
                "prefix(0)": False,
            }[str(mask)]
            assert bool(masked[query, key].isfinite()) == allowed
    assert "score where " in trace.explain(f"{name}.masked", (0, 1, 1)).formula


def test_window_is_named_in_the_formula():
    pipeline = random_model("none")
    for layer in pipeline.model.decoder:
        layer.mask = causal & window(2)
    explained = record(pipeline, SOURCE, TARGET).explain("dec.0.self.masked", (0, 1, 1))
    assert explained.formula == "score where (key ≤ query) and (|query − key| < 2), else −∞"


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0])
def test_entmax_threshold_makes_weights_sum_to_one(alpha):
    pipeline = random_model("none")
    for part in attentions(pipeline):
        score = ScaledDot(part.heads, part.dim)
        part.attention = Attention(score, normaliser=known_normalisers.Entmax(alpha))
    trace = assert_follows_model(pipeline, SOURCE, TARGET)
    explained = trace.explain("dec.0.self.weights", (1, 2, 0))
    assert explained.computation.terms[-1].running == pytest.approx(1, abs=1e-12)
    assert explained.computation.terms[3].numbers[1] == 0.0


def test_user_parts_are_explained_by_their_own_code():
    pipeline = random_model("sinusoidal")
    use_own_parts(pipeline)
    trace = assert_follows_model(pipeline, SOURCE, TARGET)
    explained = trace.explain("dec.0.self.scores", (1, 2, 1))
    factor = float(pipeline.model.decoder[0].self_attention.attention.score.factor.detach()[1])
    queries, keys = trace["dec.0.self.q.rotated"][1, 2], trace["dec.0.self.k.rotated"][1, 1]
    expected = -factor * float((queries.double() - keys.double()).abs().sum())
    assert explained.result == pytest.approx(expected, rel=1e-9)
    assert explained.operation == "score computed by Manhattan"
    assert explained.formula == "−f Σᵢ |q[i] − k[i]|"
    used = {one.name for term in explained.computation.terms for one in term.operands}
    assert used == {"dec.0.self.q.rotated", "dec.0.self.k.rotated"}
    weight = trace.explain("enc.0.self.weights", (0, 0, 0))
    assert weight.operation == "normaliser computed by Quadratic"
    assert "computed by Halved" in str(trace.explain("enc.0.self.biased", (0, 2, 1)))
    parameter = "decoder.0.self_attention.attention.score.factor"
    assert trace.operation("dec.0.self.scores").weights == (parameter,)


def test_user_parts_in_a_recurrent_model():
    pipeline = random_model("additive")
    pipeline.model.attention.attention = Attention(Manhattan(1, 8), normaliser=Quadratic())
    trace = assert_follows_model(pipeline, SOURCE, TARGET)
    assert trace.explain("attn.energy", (0, 1, 2)).operation == "score computed by Manhattan"


def test_a_subclass_is_not_traced_as_its_base():
    class Doubled(ScaledDot):
        def as_dot(self, queries, keys):
            queries, keys, scale = super().as_dot(queries, keys)
            return queries, keys, 2 * scale

    pipeline = random_model("none")
    for part in attentions(pipeline):
        part.attention = Attention(Doubled(part.heads, part.dim))
    trace = assert_follows_model(pipeline, SOURCE, TARGET)
    assert trace.explain("dec.0.self.scores", (0, 0, 0)).operation == "score computed by Doubled"


def test_unpositioned_removes_user_positions():
    pipeline = random_model("none")
    plain = record(pipeline, SOURCE, TARGET)
    for part in encoder_attentions(pipeline):
        part.attention = Attention(ScaledDot(4, 3), bias=Halved())
        part.rotation = Flipped()
    edited = record(pipeline, SOURCE, TARGET, edits=[{"kind": "unpositioned"}])
    torch.testing.assert_close(edited["out.logits"], plain["out.logits"], rtol=1e-4, atol=1e-4)


def test_temperature_divides_scores_of_any_normaliser():
    pipeline = random_model("none")
    for part in attentions(pipeline):
        part.attention = Attention(ScaledDot(part.heads, part.dim), normaliser="sparsemax")
    edits = [{"kind": "temperature", "at": "dec.0.cross", "value": 0.5}]
    trace = record(pipeline, SOURCE, TARGET, edits=edits)
    scores = trace["dec.0.cross.masked"][None] / 0.5
    expected = known_normalisers.Sparsemax()(scores, torch.ones_like(scores).bool())[0]
    torch.testing.assert_close(trace["dec.0.cross.weights"], expected)


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (
            lambda m: m.encoder.__setitem__(1, Foreign()),
            "cannot trace encoder layer 1: it is a Foreign",
        ),
        (
            lambda m: setattr(m.decoder[0], "feed_forward", Foreign()),
            "cannot trace dec.0.ffn: it is a Foreign",
        ),
        (
            lambda m: setattr(m.decoder[0].residual1, "norm", Foreign()),
            "cannot trace dec.0.norm1: it is Foreign",
        ),
        (
            lambda m: setattr(m.encoder[0].self_attention, "keys", Foreign()),
            "cannot trace enc.0.self.k: it is a F",
        ),
        (
            lambda m: setattr(m, "source", Foreign()),
            "cannot trace the source embedding: it is a Foreign",
        ),
    ],
)
def test_a_foreign_module_is_refused_by_name(replace, message):
    pipeline = random_model("none")
    replace(pipeline.model)
    with pytest.raises(RegardError) as raised:
        record(pipeline, SOURCE, TARGET)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


class Foreign(nn.Module):
    """A module that the tracer does not know."""

    def forward(self, *arguments, **options):
        return arguments[0]


def test_a_bias_in_a_recurrent_attention_is_refused():
    pipeline = random_model("dot")
    pipeline.model.attention.attention.bias = Alibi(1)
    with pytest.raises(RegardError, match=r"^cannot trace attn: it has the bias Alibi"):
        record(pipeline, SOURCE, TARGET)


def test_a_trace_that_differs_from_the_model_is_refused():
    """A hook changes the model's numbers, and no part describes it."""
    pipeline = random_model("rotary")
    record(pipeline, SOURCE, TARGET)
    hook = lambda module, inputs, output: output * 1.1  # noqa: E731
    pipeline.model.decoder[0].feed_forward.register_forward_hook(hook)
    with pytest.raises(
        RegardError, match=r"^this trace does not follow the model: its logits differ by \d"
    ):
        record(pipeline, SOURCE, TARGET)


def test_the_included_model_with_other_parts_is_traced():
    pipeline = regard.load("spelling")
    for layer in pipeline.model.decoder:
        part = layer.self_attention
        part.attention = Attention(Cosine(part.heads, part.dim), normaliser="sparsemax")
    trace = record(pipeline, "attention", pipeline("attention").text)
    assert trace.check < 1e-4
    explained = trace.explain("dec.0.self.weights", (0, 1, 0))
    assert explained.formula == "max(0, sᵢ − τ), τ such that Σ = 1"


def test_a_registered_model_class_is_traced():
    pipeline = random_model("none")

    class Renamed(type(pipeline.model)):
        """A model class of its own."""

    pipeline.model.__class__ = Renamed
    with pytest.raises(
        RegardError, match=r"cannot trace a Renamed; there are programs for Transformer, Rec"
    ):
        record(pipeline, SOURCE, TARGET)
    register(Renamed, PROGRAMS[Renamed.__mro__[1]])
    try:
        assert record(pipeline, SOURCE, TARGET).check < 3e-5
    finally:
        del PROGRAMS[Renamed]


@pytest.mark.parametrize("phi", known_normalisers.PHI)
def test_the_formula_names_the_phi_of_a_positive_normaliser(phi):
    pipeline = random_model("none")
    for part in attentions(pipeline):
        score = ScaledDot(part.heads, part.dim)
        part.attention = Attention(score, normaliser=known_normalisers.Positive(phi))
    explained = record(pipeline, SOURCE, TARGET).explain("enc.0.self.weights", (0, 1, 2))
    formula, _, kernel = explained.formula.partition(", φ(s) = ")
    assert formula == "φ(sᵢ) / Σⱼ φ(sⱼ)"
    scores = [term.operands[0].value for term in explained.computation.terms]
    for score, term in zip(scores, explained.computation.terms, strict=True):
        code = kernel.replace("−", "-").replace("- max", "- highest")
        code = re.sub(r"^(.*) if (.*), else (.*)$", r"\1 if \2 else \3", code)
        names = {"s": score, "highest": max(scores), "exp": math.exp, "log": math.log, "max": max}
        assert eval(code, names) == pytest.approx(term.numbers[0], rel=1e-9)
