"""Explanations: recomputed in float64 from the named operands, a number equals its tensor's."""

import json
import math
import random

import pytest
import torch

from regard.errors import RegardError
from regard.trace import Trace, record
from regard.trace.operations import row_wise
from regard.trace.operations.operation import TensorStore
from tests.trace.random_models import KINDS, TRANSFORMERS, random_model

PLACES = 3  # of each tensor; with all kinds of models well over 2,000
EDITS = [
    {"kind": "temperature", "at": "dec.0.self", "value": 0.7},
    {"kind": "ablate", "attention": "enc.0.self", "head": 1, "by": "mean"},
    {"kind": "ablate", "attention": "enc.1.self", "head": 0, "by": "uniform"},
    {"kind": "ablate", "attention": "dec.0.cross", "head": 2},
    {
        "kind": "row",
        "attention": "dec.0.self",
        "head": 1,
        "query": 1,
        "weights": [0.75, 0.25, 0, 0],
    },
    {"kind": "unpositioned"},
    {"kind": "unscaled"},
    {"kind": "patch", "name": "dec.0.norm3", "values": [[0.5] * 24]},
    {"kind": "temperature", "value": 2.0},
]


@pytest.fixture(scope="module", params=[*KINDS, "edited"])
def trace(request) -> Trace:
    if request.param == "edited":
        return record(random_model("rotary"), "zebra", "AH B N", edits=EDITS)
    return record(random_model(request.param), "zebra", "AH B N")


def places(trace: Trace, name: str, count: int) -> list[tuple[int, ...]]:
    draw = random.Random(name)
    return [tuple(draw.randrange(size) for size in trace[name].shape) for _ in range(count)]


def test_explain_equals_the_tensor(trace):
    seen = 0
    for name in trace.names:
        for index in places(trace, name, PLACES):
            explained = trace.explain(name, index)
            assert explained.value == float(trace[name][index])
            if math.isinf(explained.value):
                assert explained.result == explained.value
            else:
                limit = 1e-5 * max(abs(explained.value), explained.computation.largest)
                assert explained.difference <= limit, f"{name}{index}: {explained}"
            seen += 1
    assert seen >= PLACES * len(trace.names)


def test_operands_are_the_numbers_they_name(trace):
    weights = {name: weight.detach() for name, weight in trace.pipeline.model.named_parameters()}
    for name in trace.names:
        for index in places(trace, name, 1):
            explained = trace.explain(name, index)
            lines = [one for line in explained.computation.terms for one in line.operands]
            for one in [
                *lines,
                *(stage.operand for stage in explained.computation.stages if stage.operand),
            ]:
                kind = explained.kinds.get(one.name, "constant")
                if kind == "constant":
                    assert one.index == ()
                    assert one.name not in weights
                else:
                    stored = trace[one.name] if kind == "tensor" else weights[one.name]
                    assert one.value == float(stored[one.index])


def test_operands_are_inputs_of_the_operation(trace):
    """So following operands always ends at ids and weights."""
    for name in trace.names:
        explained = trace.explain(name, places(trace, name, 1)[0])
        tensors = {
            one.name
            for line in explained.computation.terms
            for one in line.operands
            if one.name in trace.names
        }
        own = {operand for operand in tensors if operand == name}
        assert not own or name.startswith(("enc.", "dec.")), name
        assert tensors <= set(trace.operation(name).inputs), name


def test_weights_sum_to_one_and_masked_ones_are_zero(trace):
    for one in trace.attentions:
        weights = trace[f"{one.name}.weights"]
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
        if one.kind == "decoder":
            forbidden = torch.ones(weights.shape[1:]).triu(1).bool()
            assert (weights[:, forbidden] == 0).all()
            assert (trace[f"{one.name}.masked"][:, forbidden] == -math.inf).all()


def test_residuals_add_up_and_logits_are_products(trace):
    for name in trace.names:
        if ".resid" in name:
            before, added = trace.operation(name).inputs
            assert torch.equal(trace[name], trace[before] + trace[added])
    last = trace.operation("out.logits").inputs[0]
    output = trace.pipeline.model.output
    bias = 0 if output.bias is None else output.bias.detach()
    torch.testing.assert_close(trace["out.logits"], trace[last] @ output.table.detach().T + bias)
    assert float(trace["out.total"]) == pytest.approx(sum(trace.answer.logps), rel=1e-6)


def test_every_operation_is_covered():
    """The traces of this file contain every operation that a program can have."""
    from regard.trace.operations import activations, element_wise, gates, interventions, row_wise
    from regard.trace.operations.operation import Operation

    traces = [record(random_model(kind), "aba", "AH") for kind in KINDS]
    traces += [record(random_model("rotary"), "zebra", "AH B N", edits=EDITS)]
    traces += [record(random_model("alibi"), "zebra", "AH B N", edits=[{"kind": "unpositioned"}])]
    traces += [
        record(
            random_model("none"),
            "aba",
            "AH",
            edits=[{"kind": "patch", "name": "dec.0.cross.q", "values": [[[1.0] * 3]] * 4}],
        )
    ]
    covered = {type(trace.operation(name)) for trace in traces for name in trace.names}
    homes = (gates, interventions, row_wise, element_wise, activations)
    bases = (Operation, activations.Activation, activations.GatedActivation)
    known = {
        kind
        for home in homes
        for kind in vars(home).values()
        if isinstance(kind, type)
        and issubclass(kind, Operation)
        and kind not in bases
        and kind.__module__ == home.__name__
    }
    assert known - covered == set()


def test_explanations_name_the_place_and_are_json(trace):
    for name in trace.names:
        explained = trace.explain(name, places(trace, name, 1)[0]).as_dict()
        assert json.loads(json.dumps(explained, allow_nan=False)) == explained
    explained = trace.explain("out.logits", (1, 3))
    assert (
        explained.place == f"target 1 “AH”, vocabulary 3 “{trace.pipeline.bundle.target.label(3)}”"
    )
    assert "in float64" in str(explained)


def test_a_place_names_query_and_key():
    trace = record(random_model("rotary"), "zebra", "AH B N")
    assert trace.explain("dec.0.cross.weights", (1, 2, 0)).place == "head 1, query 2 “B”, key 0 “z”"
    assert trace.explain("dec.0.cross.context", (1, 2, 0)).place == "head 1, target 2 “B”, dim 0"
    assert trace.explain("out.score", ()).place == "the whole output"


def test_wrong_names_and_indices_are_errors():
    trace = record(random_model("rotary"), "zebra", "AH")
    with pytest.raises(
        RegardError,
        match=r"^unknown tensor 'enc.0.self.weight'; did you mean 'enc.0.self.weights'\?$",
    ):
        trace.explain("enc.0.self.weight", (0, 0, 0))
    for index in ((0, 0), (4, 0, 0), (0, -1, 0), (0, 0, 99)):
        with pytest.raises(
            RegardError, match=r"^enc.0.self.weights has shape \(4, 6, 6\); there is no number at"
        ):
            trace.explain("enc.0.self.weights", index)


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_softmax_by_hand(kind):
    trace = record(random_model(kind), "aba", "AH B")
    scores = trace["dec.0.self.masked"][1, 2].tolist()
    exps = [math.exp(score) for score in scores]
    explained = trace.explain("dec.0.self.weights", (1, 2, 1))
    assert explained.result == pytest.approx(exps[1] / sum(exps), rel=1e-12)
    assert [line.here for line in explained.computation.terms] == [False, True, False]


@pytest.mark.parametrize("norm", [row_wise.LayerNormalisation, row_wise.RMSNormalisation])
def test_the_eps_of_a_norm_is_included(norm):
    """For tiny rows it is most of the sum; otherwise float32 hides it."""
    weights = ("gain", "shift") if norm is row_wise.LayerNormalisation else ("gain",)
    at = TensorStore(
        {"gain": torch.tensor([1.0, 2.0]), "shift": torch.tensor([0.5, 0.0])},
        {"x": torch.tensor([[2e-3, -1e-3]])},
    )
    operation = norm(("x",), weights, 1e-5)
    for j in range(2):
        explained = operation.explain(at, (0, j)).result
        assert explained == pytest.approx(float(operation.compute(at, slice(None))[0, j]), rel=1e-5)


def test_an_index_may_be_a_tuple_a_list_or_a_number():
    trace = record(random_model("rotary"), "zebra", "AH B")
    tupled, listed = (
        trace.explain("enc.0.self.weights", index) for index in ((0, 1, 2), [0, 1, 2])
    )
    assert tupled.value == listed.value
    assert trace.explain("out.chosen", 1).value == trace.explain("out.chosen", [1]).value
