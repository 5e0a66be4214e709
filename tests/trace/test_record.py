"""Traces: their tensors equal those of the model, of its layers and of torch."""

import pytest
import torch

from regard.models.layers import EncoderLayer, ResidualStream
from regard.ragged import Ragged
from regard.search import Greedy
from regard.teacher_forcing import record_attention
from regard.text import BEGIN, END
from regard.trace import record
from tests.trace.random_models import ATTENDING, KINDS, TRANSFORMERS, random_model


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_the_models(kind):
    t = random_model(kind)
    trace = record(t, "zebra", "AH B N")
    source = Ragged.of([torch.tensor([*t.bundle.source.encode("zebra"), END])])
    prefix = Ragged.of([torch.tensor([BEGIN, *t.bundle.target.encode("AH B N")])])
    with torch.no_grad():
        logits = t.model(source, prefix).values
    torch.testing.assert_close(trace["out.logits"], logits, rtol=1e-4, atol=1e-4)
    assert trace.check < 1e-4
    assert trace.check == pytest.approx(float((trace["out.logits"] - logits).abs().max()), abs=1e-5)


@pytest.mark.parametrize("kind", ATTENDING)
def test_the_weights_are_the_models(kind):
    t = random_model(kind)
    trace = record(t, "zebra", "AH B N")
    source = Ragged.of([torch.tensor([*t.bundle.source.encode("zebra"), END])])
    seen = record_attention(
        t.model, source, Ragged.of([torch.tensor([BEGIN, *t.bundle.target.encode("AH B N")])])
    )
    assert len(seen) == len(trace.attentions)
    for weights, one in zip(seen.values(), trace.attentions, strict=True):
        torch.testing.assert_close(trace[f"{one.name}.weights"], weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_encoder_layers_outputs_are_recorded(kind):
    t = random_model(kind)
    outputs = []
    for layer in t.model.encoder:
        assert isinstance(layer, EncoderLayer)
        layer.register_forward_hook(lambda module, inputs, output: outputs.append(summed(output)))
    trace = record(t, "zebra", "AH")
    last = "norm2" if KINDS[kind].norm_order == "post" else "resid2"
    for i, output in enumerate(outputs):
        torch.testing.assert_close(trace[f"enc.{i}.{last}"], output, rtol=1e-4, atol=1e-4)


def summed(stream: ResidualStream) -> torch.Tensor:
    """The sum that a layer leaves open."""
    return stream.x.values if stream.latest is None else stream.x.values + stream.latest


@pytest.mark.parametrize("kind", ["additive", "additive-lstm", "bottleneck"])
def test_the_recurrent_states_are_torchs(kind):
    t = random_model(kind)
    trace = record(t, "zebra", "AH B")
    with torch.no_grad():
        states, last = t.model.encoder(trace["src.embed"][:, None])
    torch.testing.assert_close(trace["enc.h"], states[:, 0], rtol=1e-5, atol=1e-6)
    final = last[0] if isinstance(last, tuple) else last
    torch.testing.assert_close(
        trace["enc.summary"], torch.cat([final[-2], final[-1]], -1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["rotary", "additive"])
def test_a_trace_without_a_target_has_the_models_answer(kind):
    t = random_model(kind)
    trace = record(t, "zebra")
    assert trace.answer.ids == t("zebra").ids
    assert trace.answer.logps == pytest.approx(t("zebra").logps, abs=1e-4)
    assert trace.answer.score == pytest.approx(t("zebra").score, abs=1e-3)
    assert record(t, "zebra", search=Greedy()).answer.ids == t("zebra", Greedy()).ids


@pytest.mark.parametrize("kind", ["sinusoidal", "general"])
def test_a_neutral_edit_gives_the_greedy_answer(kind):
    t = random_model(kind)
    same = record(t, "zebra", edits=[{"kind": "temperature", "at": "out", "value": 1.0}])
    assert same.answer.ids == t("zebra", Greedy()).ids
    assert same.check is None


def test_tokens_have_their_positions_in_the_text():
    trace = record(random_model("rotary"), "  zebra ", "AH B")
    assert [(p.text, p.start, p.end) for p in trace.source[:2]] == [("z", 2, 3), ("e", 3, 4)]
    assert (trace.source[-1].id, trace.source[-1].start) == (END, 7)
    assert [p.text for p in trace.target] == ["< begin >", "AH", "B"]
    assert [p.text for p in trace.following] == ["AH", "B", "< end >"]
    assert trace["dec.0.cross.weights"].shape == (4, 3, 6)
    assert trace.axes("dec.0.cross.weights") == ("head", "target", "source")
    assert "zebra" in repr(trace)


def test_every_tensor_has_its_named_axes():
    for kind in KINDS:
        trace = record(random_model(kind), "zebra", "AH B N")
        sizes = {"source": 6, "target": 4, "one": 1}
        for name in trace.names:
            axes = trace.axes(name)
            assert len(axes) == trace[name].ndim, name
            for axis, size in zip(axes, trace[name].shape, strict=True):
                assert sizes.get(axis, size) == size, name
            assert set(trace.operation(name).inputs) <= set(trace.numbers), name


def test_an_empty_source_and_target():
    trace = record(random_model("rotary"), "", "")
    assert trace["dec.0.cross.weights"].shape == (4, 1, 1)
    assert trace.check < 1e-4


def test_a_trace_contains_its_names():
    trace = record(random_model("rotary"), "zebra", "AH")
    assert "out.logits" in trace
    assert "nothing" not in trace
    assert list(trace) == trace.names
