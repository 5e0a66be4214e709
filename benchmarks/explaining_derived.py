"""Numbers that are derived from a trace: by Regard in Python, and by the code of the page.

The page's functions run in Chromium: `ask` sends calls such as ["normOf", vector, place, value] and
returns explanations; operands that open an explanation of their own have it as `made`.
"""

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from explaining_check import near, real
from explaining_subjects import Subject

from regard.explore import STATIC
from regard.explore.head_ablation import ablated
from regard.search import Beam
from regard.trace import agreement, alignment_matrix, beam_tree, distance, entropy, record
from regard.trace.attention_analysis import bits, copy_logps, occluded_logps
from regard.trace.derived import embedding_cosine, lens_probability, lens_rank, pca_coordinate
from regard.trace.residual_analysis import (
    embedding_table_name,
    logit_lens,
    pca_projection,
    residual_contributions,
)

# Runs calls and writes their explanations as JSON, with two of the explanations inside each.
PAGE = """text => {
  const { derived } = window.regardExplorer;
  const given = value => {
    if (Array.isArray(value)) return value.map(given);
    if (value === null || typeof value !== "object") return value;
    if (value.floats) return Float32Array.from(value.floats);
    if (value.call) return run(value.call);
    if (value.opens) {
      const made = run(value.opens);
      return derived.computed(made.name, made.result, () => made);
    }
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, given(one)]));
  };
  const run = ([name, ...values]) => derived[name](...values.map(given));
  const open = (made, deep) => {
    let left = 2;
    const operand = one => one && (one.open && deep && left-- > 0
      ? { ...one, made: open(one.open(), deep - 1) } : one);
    return {
      ...made,
      rows: made.rows.map(row => ({ ...row, operands: row.operands.map(operand) })),
      steps: made.steps.map(step => ({ ...step, operand: operand(step.operand) })),
    };
  };
  const plain = (_, value) => typeof value !== "number" || Number.isFinite(value) ? value
    : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return JSON.stringify(JSON.parse(text).map(call => open(run(call), 2)), plain);
}"""


def page_functions(browser: Any) -> Callable[[list[Any]], list[dict[str, Any]]]:
    """`ask`, on a page that has the built script of the explorer."""
    page = browser.new_page()
    page.set_content('<!doctype html><div id="app"></div>')
    page.add_script_tag(path=STATIC / "explorer.js")
    return lambda calls: json.loads(page.evaluate(PAGE, json.dumps(calls)))


def floats(numbers: torch.Tensor) -> dict[str, list[float]]:
    """A tensor as an argument of a page's function."""
    return {"floats": numbers.flatten().tolist()}


def vector(one: Subject, name: str, lead: tuple[int, ...]) -> dict[str, Any]:
    """The last axis of a tensor at leading indices."""
    return {"name": name, "lead": list(lead), "numbers": floats(one.trace[name][lead])}


def tensor(name: str, index: tuple[int, ...], value: float) -> dict[str, Any]:
    """An operand of the page that names a number."""
    return {"name": name, "index": list(index), "value": value, "kind": "tensor"}


def constant(name: str, value: float) -> dict[str, Any]:
    """An operand of the page that names none."""
    return {"name": name, "index": [], "value": value, "kind": "constant"}


def vector_calls(draw: random.Random, one: Subject) -> Iterator[Any]:
    """Norms, cosines and quotients of norms."""
    trace = one.trace
    names = [name for name in trace.names if trace[name].ndim > 1 and "masked" not in name]
    name = draw.choice([each for each in names if trace[each].isfinite().all()])
    lead = tuple(draw.randrange(size) for size in trace[name].shape[:-1])
    yield ["normOf", vector(one, name, lead), "", float(trace[name][lead].norm())]
    side = draw.choice(["source", "target"])
    at = draw.randrange(len(trace.pieces(side)))
    for added in draw.sample(found := residual_contributions(trace, side, at), min(2, len(found))):
        before = trace.origin(added.into).inputs[0]
        both = [vector(one, each, (at,)) for each in (added.name, before)]
        yield ["cosineOf", *both, "", added.cosine]
        yield ["ratioOf", *both, "", added.norm / float(trace[before][at].norm())]


def head_calls(draw: random.Random, one: Subject) -> Iterator[Any]:
    """Entropies, distances and mean weights."""
    trace = one.trace
    for attention in draw.sample(trace.attentions, min(2, len(trace.attentions))):
        name, head = f"{attention.name}.weights", draw.randrange(attention.heads)
        weights = trace[name]
        if not ((weights >= 0).all() and (weights <= 1.0001).all()):
            continue  # entropies are for weights that are shares
        _, rows, cols = weights.shape
        given = {"name": name, "head": head, "data": floats(weights), "rows": rows, "cols": cols}
        given["offset"] = head * rows * cols
        values = {"entropy": entropy(weights.double())}
        if attention.query == attention.key:
            values["distance"] = distance(weights.double())
        for kind, value in values.items():
            yield ["headStatistic", given, kind, float(value[head])]
    crosses = [each for each in trace.attentions if each.kind == "cross"]
    if crosses:
        matrix = alignment_matrix(trace)
        i, j = (draw.randrange(size) for size in matrix.shape)
        heads = [(f"{each.name}.weights", head) for each in crosses for head in range(each.heads)]
        operands = [tensor(name, (h, i, j), float(trace[name][h, i, j])) for name, h in heads]
        yield ["meanOf", "mean attention weight", [i, j], "", operands, float(matrix[i, j])]


def output_calls(draw: random.Random, one: Subject) -> Iterator[Any]:
    """The entropy and the perplexity of the next token; sums and scores of hypotheses."""
    trace = one.trace
    row = draw.randrange(len(trace.target))
    logps = trace["out.logprobs"][row]
    call = ["outputEntropy", row, floats(logps), float(bits(logps.double().exp()))]
    yield call
    yield ["perplexityOf", {"call": call}]
    if trace.edits:
        return
    beams = beam_tree(trace.pipeline, trace.answer.source, Beam(draw.choice([1, 3])))
    for node in draw.sample(beams.nodes, min(3, len(beams.nodes))):
        path = [beams.nodes[number] for number in beams.path(node.number)]
        operands = [constant(f"log p of {each.token}", each.logp) for each in path]
        total = ["sumOf", "sum of log p", "", operands, node.total]
        yield total
        divisor = constant("penalty", beams.search.length_penalty.divisor(node.step + 1))
        yield ["quotientOf", "score of the hypothesis", "", {"opens": total}, divisor, node.score]


def effect_calls(draw: random.Random, one: Subject) -> Iterator[Any]:
    """Effects of heads and of hidden source tokens, their rank correlation, and differences."""
    trace, pipeline = one.trace, one.trace.pipeline
    chosen, total = trace["out.chosen"], float(trace["out.total"])
    if trace.edits or not trace.attentions:
        if trace.edits:
            plain = record(pipeline, trace.answer.source, trace.answer.text)
            at = draw.randrange(min(len(chosen), len(plain.target)))
            both = [float(each["out.chosen"][at]) for each in (trace, plain)]
            operands = tensor("out.chosen", (at,), both[0]), constant("reference", both[1])
            yield ["differenceOf", "current − reference", "", *operands, both[0] - both[1]]
        return
    attention = draw.choice(trace.attentions)
    head = draw.randrange(attention.heads)
    ids = [piece.id for piece in trace.source], [piece.id for piece in trace.following]
    with torch.no_grad(), ablated(pipeline.model, trace.attentions, [(attention.name, head)]):
        without = float(copy_logps(pipeline.model, *ids, 1, trace.template.start[0])[0].sum())
    edits = [{"kind": "ablate", "attention": attention.name, "head": head}]
    edited = record(pipeline, trace.answer.source, trace.answer.text, edits=edits)
    same = [piece.id for piece in edited.following] == ids[1]  # text may not give all tokens back
    if same and not near(without, float(edited["out.total"]), 1e-4, 1.0):
        raise AssertionError(f"log p without {attention.name} {head}: {without} and {edited}")
    operands = tensor("out.total", (), total), constant("log p without", without)
    yield ["differenceOf", "effect", "", *operands, total - without]
    crosses = [each for each in trace.attentions if each.kind == "cross"]
    if not crosses:
        return
    whole, hidden = occluded_logps(pipeline, trace)
    effects = whole[:, None] - hidden
    i, j = (draw.randrange(size) for size in effects.shape)

    def effect(row: int, column: int) -> list[Any]:
        after = constant("log p with a token hidden", float(hidden[row, column]))
        before = tensor("out.chosen", (row,), float(chosen[row]))
        return ["differenceOf", "effect", "", before, after, float(effects[row, column])]

    yield effect(i, j)
    name = f"{crosses[0].name}.weights"
    weights = trace[name][0]
    value = agreement(weights, effects)
    if value is not None:
        cells = [(row, column) for row in range(len(weights)) for column in range(len(weights[0]))]
        pairs = [
            [tensor(name, (0, *at), float(weights[at])), {**constant("effect", float(effects[at]))}]
            for at in cells
        ]
        yield ["correlationOf", pairs, value]


def table_numbers(draw: random.Random, one: Subject) -> Iterator[dict[str, Any]]:
    """Cosines, coordinates, probabilities and ranks that Regard explains from the tables."""
    trace, side = one.trace, draw.choice(["source", "target"])
    table = one.parameters[embedding_table_name(trace, side)]
    first, second = (draw.randrange(len(table)) for _ in range(2))
    yield embedding_cosine(trace, side, first, second).as_dict()
    plane, axis = pca_projection(trace, side), draw.randrange(2)
    found = pca_coordinate(trace, side, draw.choice(plane.ids), axis).as_dict()
    check_axis(table[plane.ids].double().numpy(), found, axis)
    yield found
    row = draw.randrange(len(trace.target))
    lens = logit_lens(trace, row)
    if lens:
        name, token = draw.choice(list(lens)), draw.randrange(len(trace["out.logits"][0]))
        found = lens_probability(trace, name, row, token).as_dict()
        check_lens(one, found)
        yield found
        yield lens_rank(trace, name, row, token).as_dict()


def check_axis(table: np.ndarray, found: dict[str, Any], axis: int) -> None:
    """Raise unless the shown mean and axis are those of the table."""
    shown = np.array([[one["value"] for one in row["operands"]] for row in found["rows"]])
    centred = table - table.mean(0)
    matrix = centred.T @ centred
    size = np.linalg.eigvalsh(matrix)[-1 - axis]
    direction = shown[:, 2]
    assert np.allclose(shown[:, 1], table.mean(0), atol=1e-9), "the mean of a table"
    assert np.allclose(matrix @ direction, size * direction, atol=1e-6 * size), "a component"
    assert math.isclose(float(direction @ direction), 1, rel_tol=1e-9), "its length"


def check_lens(one: Subject, found: dict[str, Any]) -> None:
    """Raise unless the shown log Σ exp is that of all logits of the shown state."""
    state = np.array([real(row["operands"][0]["value"]) for row in found["rows"]])
    names = one.trace.origin("out.logits").weights
    table, *bias = (one.parameters[name].double().numpy() for name in names)
    logits = table @ state + (bias[0] if bias else 0.0)
    expected = logits.max() + math.log(np.exp(logits - logits.max()).sum())
    shown = next(s["value"] for s in found["steps"] if s["label"].startswith("log Σ"))
    assert math.isclose(shown, expected, rel_tol=1e-9, abs_tol=1e-9), "log Σ exp(logits)"


CALLS = (vector_calls, head_calls, output_calls, effect_calls)
