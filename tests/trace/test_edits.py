"""Edits: each equals a model in which that part was really changed."""

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import Dot, everything
from regard.errors import RegardError
from regard.models import build
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.text import BEGIN, END
from regard.trace import record
from tests.trace.random_models import ATTENDING, KINDS, TRANSFORMERS, random_model

SOURCE, TARGET = "zebra", "AH B N"


def logits(t: Pipeline, source: str = SOURCE) -> Tensor:
    ids = Ragged.of([torch.tensor([*t.bundle.source.encode(source), END])])
    with torch.no_grad():
        return t.model(
            ids, Ragged.of([torch.tensor([BEGIN, *t.bundle.target.encode(TARGET)])])
        ).values


def edited(t: Pipeline, *edits: dict) -> Tensor:
    return record(t, SOURCE, TARGET, edits=edits)["out.logits"]


def attention(t: Pipeline, name: str):
    stack, layer, kind = name.split(".")
    part = (t.model.encoder if stack == "enc" else t.model.decoder)[int(layer)]
    return part.self_attention if kind == "self" else part.cross_attention


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_head_ablation_zeroes_a_slice_of_the_output_matrix(kind):
    names = [one.name for one in record(random_model(kind), SOURCE, TARGET).attentions]
    for name in names:
        for head in (0, 3):
            t = random_model(kind)
            result = edited(t, {"kind": "ablate", "attention": name, "head": head})
            heads = attention(t, name)
            with torch.no_grad():
                heads.out.weight[:, head * heads.dim : (head + 1) * heads.dim] = 0
            torch.testing.assert_close(
                result, logits(t), rtol=1e-6, atol=2e-6 * float(result.abs().max())
            )


@pytest.mark.parametrize("kind", [kind for kind in ATTENDING if kind not in TRANSFORMERS])
def test_recurrent_ablation_zeroes_the_context_columns(kind):
    t = random_model(kind)
    result = edited(t, {"kind": "ablate", "attention": "attn", "head": 0})
    width = KINDS[kind].width
    with torch.no_grad():
        t.model.readout.weight[:, width:] = 0
        if t.model.attends_before:
            t.model.decoder.weight_ih_l0[:, width:] = 0
    torch.testing.assert_close(result, logits(t), rtol=1e-6, atol=2e-6 * float(result.abs().max()))


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_unscaled_is_the_plain_dot_product(kind):
    t = random_model(kind)
    result = edited(t, {"kind": "unscaled"})
    for name in [one.name for one in record(t, SOURCE, TARGET).attentions]:
        heads = attention(t, name)
        heads.attention.score = Dot(heads.heads, heads.dim)
    torch.testing.assert_close(result, logits(t), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(result, logits(random_model(kind)), atol=1e-3)


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_unmasked_is_the_model_without_its_mask(kind):
    t = random_model(kind)
    result = edited(t, {"kind": "unmasked", "attention": "dec.0.self"})
    assert not torch.allclose(result, logits(t), atol=1e-3)
    for layer in t.model.decoder:
        layer.mask = everything
    torch.testing.assert_close(result, logits(t), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in TRANSFORMERS if kind != "none"])
def test_unpositioned_is_the_model_built_without_positions(kind):
    t = random_model(kind)
    result = edited(t, {"kind": "unpositioned"})
    plain = build(
        KINDS[kind].model_copy(update={"position": "none"}),
        len(t.bundle.source),
        len(t.bundle.target),
    ).eval()
    plain.load_state_dict(t.model.state_dict(), strict=False)
    t.model = plain
    torch.testing.assert_close(result, logits(t), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_shuffled_positions_are_tokens_in_another_order(kind):
    t = random_model(kind)
    shuffled = record(t, SOURCE, TARGET, edits=[{"kind": "shuffled", "seed": 4}])
    order = shuffled.numbers["src.positions"]
    ids = torch.empty_like(order)
    ids[order] = shuffled.numbers["src.ids"]
    with torch.no_grad():
        memory = t.model.encode(Ragged.of([ids])).values
    last = [name for name in shuffled.names if name.startswith("enc.")][-1]
    torch.testing.assert_close(shuffled[last], memory[order], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["rotary", "additive", "dot"])
def test_temperature_uniform_mean_and_rows(kind):
    t = random_model(kind)
    name = "dec.0.cross" if kind == "rotary" else "attn"
    before = "masked" if kind == "rotary" else "energy"
    hot = record(t, SOURCE, TARGET, edits=[{"kind": "temperature", "at": name, "value": 3.0}])
    torch.testing.assert_close(hot[f"{name}.weights"], (hot[f"{name}.{before}"] / 3).softmax(-1))
    flat = record(
        t,
        SOURCE,
        TARGET,
        edits=[{"kind": "ablate", "attention": name, "head": 0, "by": "uniform"}],
    )
    assert torch.allclose(flat[f"{name}.weights"][0], torch.full((4, 6), 1 / 6))
    row = record(
        t,
        SOURCE,
        TARGET,
        edits=[
            {"kind": "row", "attention": name, "head": 0, "query": 2, "weights": [0, 0, 1, 0, 0, 0]}
        ],
    )
    value = row[f"{name}.v"][0, 2] if kind == "rotary" else row["attn.value"][0, 2]
    torch.testing.assert_close(row[f"{name}.context"][0, 2], value)
    torch.testing.assert_close(row[f"{name}.weights"][0, 1], row[f"{name}.weights.own"][0, 1])


def test_the_mean_of_a_head_is_the_same_for_every_query():
    trace = record(
        random_model("rotary"),
        SOURCE,
        TARGET,
        edits=[{"kind": "ablate", "attention": "dec.0.cross", "head": 1, "by": "mean"}],
    )
    own = trace["dec.0.cross.context.own"]
    torch.testing.assert_close(trace["dec.0.cross.context"][1], own[1].mean(0).expand(4, -1))
    assert torch.equal(trace["dec.0.cross.context"][0], own[0])


@pytest.mark.parametrize("kind", ["rotary", "additive"])
def test_a_forced_token_changes_what_follows(kind):
    t = random_model(kind)
    token = t.bundle.target.encode("Z")[0]
    free = record(t, SOURCE, edits=[{"kind": "force", "step": 1, "token": token}])
    assert free.answer.ids[1] == token
    again = record(t, SOURCE, free.answer.text)
    likeliest = again["out.logprobs"].argmax(-1).tolist()
    output = [*free.answer.ids, END]
    assert [a for i, a in enumerate(output) if i != 1][: len(likeliest) - 1] == [
        a for i, a in enumerate(likeliest) if i != 1
    ][: len(output) - 1] or len(output) == int(t.max_length) + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"kind": "ablate", "attention": "dec.9.cross", "head": 0},
            "unknown attention 'dec.9.cross'; did you mean",
        ),
        (
            {"kind": "ablate", "attention": "dec.0.cross", "head": 4},
            "dec.0.cross has heads 0 to 3; got 4",
        ),
        ({"kind": "ablate", "attention": "dec.0.cross", "head": -1}, "edit.ablate.head: "),
        ({"kind": "explode"}, "edit: input tag 'explode'"),
        (
            {"kind": "row", "attention": "dec.0.cross", "head": 0, "query": 9, "weights": [1]},
            "dec.0.cross has rows 0 to 3",
        ),
        (
            {"kind": "row", "attention": "dec.0.cross", "head": 0, "query": 0, "weights": [1]},
            "a row of dec.0.cross has 6 w",
        ),
        ({"kind": "temperature", "value": 0}, "edit.temperature.value: "),
        (
            {"kind": "unmasked", "attention": "dec.0.cross"},
            "dec.0.cross has no mask; nothing to switch off",
        ),
        (
            {"kind": "patch", "name": "dec.0.nor", "values": [1.0]},
            "unknown tensor 'dec.0.nor'; did you mean",
        ),
        (
            {"kind": "patch", "name": "dec.0.norm1", "values": [[1.0], [1.0, 2.0]]},
            "the values of a patch must be",
        ),
        (
            {"kind": "patch", "name": "src.embed", "values": [[1.0]]},
            "src.embed is (6, 24); the patch for it is (1, 1)",
        ),
        (
            {"kind": "patch", "name": "src.embed", "values": []},
            "src.embed is (6, 24); the patch for it is (0,)",
        ),
        (
            {"kind": "patch", "name": "enc.0.self.weights", "values": [1.0]},
            "enc.0.self.weights is (4, 6, 6); the patch",
        ),
        (
            {"kind": "patch", "name": "out.score", "values": [1.0]},
            "out.score is a single number; patch the tensors",
        ),
        (
            {"kind": "force", "step": 0, "token": 99},
            "token 99 forced at step 0 is not in the vocabulary",
        ),
        (
            {"kind": "force", "step": 50, "token": 4},
            "a token is forced at step 50; the target has steps 0 to 2",
        ),
        ({"kind": "temperature", "value": 1e-40}, "edit.temperature.value: "),
        ({"kind": "shuffled", "seed": 10**30}, "edit.shuffled.seed: "),
        (
            {"kind": "row", "attention": "enc.0.self", "head": 0, "query": 0, "weights": [1]}
            | {"weight": [1]},
            "unknown setting edit.row.weight; did you mean 'weights'?",
        ),
    ],
)
def test_a_wrong_edit_is_reported_in_one_line(change, message):
    with pytest.raises(RegardError) as raised:
        record(random_model("rotary"), SOURCE, TARGET, edits=[change])
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_recurrent_attention_has_no_mean_ablation():
    with pytest.raises(
        RegardError,
        match="attn is computed step by step, so its mean is not known before the last step",
    ):
        record(
            random_model("additive"),
            SOURCE,
            TARGET,
            edits=[{"kind": "ablate", "attention": "attn", "head": 0, "by": "mean"}],
        )


def test_an_edited_answer_respects_the_length_limit():
    t = random_model("rotary")
    whole, short = (
        record(t, SOURCE, edits=[{"kind": "unscaled"}], max_length=most).answer.ids
        for most in (None, 2)
    )
    assert len(whole) > 2
    assert short == whole[:2]


def test_missing_parts_cannot_be_switched_off():
    with pytest.raises(RegardError, match="this model has no position encoding to shuffle"):
        record(random_model("additive"), SOURCE, TARGET, edits=[{"kind": "shuffled"}])
    for change in ("unpositioned", "unscaled", "unmasked"):
        with pytest.raises(
            RegardError, match=r"(nothing to switch off|no position encoding to switch off)$"
        ):
            record(random_model("additive"), SOURCE, TARGET, edits=[{"kind": change}])
    with pytest.raises(
        RegardError, match=r"^token 99 forced at step 0 is not in the vocabulary of \d+$"
    ):
        record(random_model("additive"), SOURCE, edits=[{"kind": "force", "step": 0, "token": 99}])


WARM = {"kind": "temperature", "at": "dec.0.cross", "value": 3.0}
ROW = {
    "kind": "row",
    "attention": "dec.0.cross",
    "head": 1,
    "query": 2,
    "weights": [0.5, 0.5, 0, 0, 0, 0],
}
EVEN = {"kind": "ablate", "attention": "dec.0.cross", "head": 0, "by": "uniform"}


@pytest.mark.parametrize("others", [[ROW], [ROW, EVEN], [EVEN]])
def test_a_temperature_may_be_set_after_other_edits(others):
    t = random_model("rotary")
    first = record(t, SOURCE, TARGET, edits=[WARM, *others])
    last = record(t, SOURCE, TARGET, edits=[*others, WARM])
    torch.testing.assert_close(
        first["dec.0.cross.weights"], last["dec.0.cross.weights"], rtol=0, atol=0
    )
    torch.testing.assert_close(first["out.logits"], last["out.logits"], rtol=0, atol=0)
    plain = record(t, SOURCE, TARGET, edits=others)
    assert not torch.allclose(last["out.logits"], plain["out.logits"], atol=1e-4)
    assert last.explain("dec.0.cross.weights", (2, 1, 0)).difference < 1e-6


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_shuffled_answer_is_greedy_in_its_own_numbers(seed):
    trace = record(regard.load("spelling"), "attention", edits=[{"kind": "shuffled", "seed": seed}])
    ids, positions = trace.answer.ids, trace.numbers["tgt.positions"]
    assert trace["out.logprobs"].argmax(-1)[: len(ids)].tolist() == ids != []
    assert len(positions.unique()) == len(positions)
    assert positions.tolist() != sorted(positions.tolist())


def test_huge_weights_are_refused():
    row = {**ROW, "weights": [1e300] * 6}
    with pytest.raises(RegardError, match="less than or equal to 1000000"):
        record(random_model("rotary"), SOURCE, TARGET, edits=[row])


def test_a_token_forced_beyond_the_answer_is_refused():
    t = regard.load("spelling")
    token = t.bundle.target.encode("Z")[0]
    edits = [
        {"kind": "force", "step": 2, "token": END},
        {"kind": "force", "step": 5, "token": token},
    ]
    with pytest.raises(
        RegardError, match="a token is forced at step 5, but the edited output ends at step 2"
    ):
        record(t, "attention", edits=edits)
    assert len(record(t, "attention", edits=edits[:1]).answer.ids) == 2
