"""Every score, normaliser, position encoding and mask is traced and explained inside a model."""

import math
import random

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import (
    NORMALISERS,
    SCORES,
    Attention,
    Cosine,
    MultiHead,
    Normaliser,
    ScaledDot,
    Score,
    causal,
    prefix,
    window,
)
from regard.attention import normalisers as known_normalisers
from regard.errors import RegardError
from regard.models.recurrent import SourceAttention
from regard.pipeline import Pipeline
from regard.positions import T5, Alibi, Distance, Rotary, Shaw, Sinusoidal
from regard.positions.position import BiasPosition, RotaryPosition
from regard.ragged import Ragged
from regard.search import record_attention
from regard.text import BEGIN, END
from regard.trace import Trace, record, register
from regard.trace.record import PROGRAMS
from tests.trace.random_models import random_model

SOURCE, TARGET = "zebra", "AH B N"
RECURRENT = ["additive", "dot", "concat"]


def attentions(pipeline: Pipeline) -> list[nn.Module]:
    """Every module that owns an attention."""
    owners = (MultiHead, SourceAttention)
    return [part for part in pipeline.model.modules() if isinstance(part, owners)]


def assemble(
    kind: str, score: str = "scaled-dot", normaliser: str | Normaliser = "softmax"
) -> Pipeline:
    """A random model in which every attention has this score and this normaliser."""
    pipeline = random_model(kind)
    for part in attentions(pipeline):
        old = part.attention
        new = SCORES[score](old.score.heads, old.score.dim)
        part.attention = Attention(new, bias=old.bias, normaliser=normaliser)
    return pipeline


def assert_explained(trace: Trace, *, count: int = 2) -> None:
    """`check` is small, and random cells of every tensor of an attention explain themselves."""
    assert trace.check < 3e-5
    for name in trace.names:
        if (
            ".self." not in name
            and ".cross." not in name
            and not name.startswith(("attn.", "src.", "tgt."))
        ):
            continue
        draw = random.Random(name)
        for _ in range(count):
            index = tuple(draw.randrange(size) for size in trace[name].shape)
            explained = trace.explain(name, index)
            if math.isinf(explained.value):
                assert explained.result == explained.value
            else:
                limit = 1e-5 * max(abs(explained.value), explained.computation.largest, 0.1)
                assert explained.difference <= limit, f"{name}{index}: {explained}"


def assert_follows_model(pipeline: Pipeline) -> Trace:
    """Weights are those that the model itself computes, and every number is explained."""
    trace = record(pipeline, SOURCE, TARGET)
    ids = [*pipeline.bundle.source.encode(SOURCE), END]
    prefix = [BEGIN, *pipeline.bundle.target.encode(TARGET)]
    expected = record_attention(
        pipeline.model, *(Ragged.of([torch.tensor(one)]) for one in (ids, prefix))
    )
    assert len(expected) == len(trace.attentions)
    for weights, one in zip(expected.values(), trace.attentions, strict=True):
        torch.testing.assert_close(trace[f"{one.name}.weights"], weights, rtol=1e-4, atol=1e-5)
    assert_explained(trace)
    return trace


@pytest.mark.parametrize("normaliser", NORMALISERS)
@pytest.mark.parametrize("score", SCORES)
def test_score_and_normaliser_in_a_transformer(score, normaliser):
    assert_follows_model(assemble("rotary", score, normaliser))


@pytest.mark.parametrize("normaliser", NORMALISERS)
@pytest.mark.parametrize("score", SCORES)
def test_score_and_normaliser_in_a_recurrent_model(score, normaliser):
    for kind in RECURRENT[:2]:
        assert_follows_model(assemble(kind, score, normaliser))


@pytest.mark.parametrize("phi", known_normalisers.PHI)
def test_positive_normaliser_with_each_phi(phi):
    assert_follows_model(assemble("alibi", normaliser=known_normalisers.Positive(phi)))


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0])
def test_entmax_threshold_makes_weights_sum_to_one(alpha):
    trace = assert_follows_model(assemble("none", normaliser=known_normalisers.Entmax(alpha)))
    explained = trace.explain("dec.0.self.weights", (1, 2, 0))
    assert explained.computation.terms[-1].running == pytest.approx(1, abs=1e-12)
    assert explained.computation.terms[3].numbers[1] == 0.0


def heads_of(pipeline: Pipeline, stack: str) -> list[MultiHead]:
    return [layer.self_attention for layer in getattr(pipeline.model, stack)]


BIASES = {
    "alibi": lambda: Alibi(4),
    "distance": lambda: Distance(4, 3, max_distance=2),
    "t5": lambda: T5(4, buckets=4, max_distance=3),
    "t5-causal": lambda: T5(4, buckets=4, max_distance=3, causal=True),
    "shaw": lambda: Shaw(3, max_distance=2),
}


@pytest.mark.parametrize("normaliser", ["softmax", "sparsemax", "none"])
@pytest.mark.parametrize("bias", BIASES)
def test_bias_with_other_scores_and_normalisers(bias, normaliser):
    pipeline = random_model("none")
    for part in (*heads_of(pipeline, "encoder"), *heads_of(pipeline, "decoder")):
        made_bias = BIASES[bias]()
        for weight in made_bias.parameters():
            nn.init.normal_(weight)
        part.attention = Attention(Cosine(4, 3, scale=2.0), bias=made_bias, normaliser=normaliser)
    assert_follows_model(pipeline)


@pytest.mark.parametrize(
    "options",
    [
        {"pairs": "neighbours"},
        {"scaling": "linear", "factor": 3.0},
        {"scaling": "ntk", "factor": 2.0},
        {"base": 100.0},
    ],
    ids=str,
)
def test_rotation_variants(options):
    pipeline = random_model("rotary")
    for part in (*heads_of(pipeline, "encoder"), *heads_of(pipeline, "decoder")):
        part.rotation = Rotary(part.dim, **options)
    assert_follows_model(pipeline)


def test_partial_rotation():
    pipeline = random_model("rotary")
    for part in heads_of(pipeline, "decoder"):
        part.rotation = Rotary(part.dim, **{ROTATED: 2 / part.dim})
    assert_follows_model(pipeline)


ROTATED = next(
    name for name in ("part", "fraction", "share") if name in Rotary.__init__.__annotations__
)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "mask", [window(1), window(2), causal & window(2), causal | prefix(2), prefix(0)], ids=str
)
def test_masks_of_self_attention(stack, mask):
    pipeline = random_model("rotary")
    for layer in getattr(pipeline.model, stack):
        layer.mask = mask
    trace = assert_follows_model(pipeline)
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


class Manhattan(Score):
    """−‖q − k‖₁, with a learned factor per head: a part that the tracer does not know."""

    formula = "−f Σᵢ |q[i] − k[i]|"
    paper = "a test"

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__(heads, dim)
        self.factor = nn.Parameter(torch.rand(heads) + 0.5)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        distances = (queries[:, :, :, None] - keys[:, :, None]).abs().sum(-1)
        return -self.factor[:, None, None] * distances


class Squared(Normaliser):
    """s² / Σ s²: a normaliser without a formula."""

    def forward(self, scores: Tensor, allowed: Tensor) -> Tensor:
        squares = scores.square() * allowed
        return squares / squares.sum(-1, keepdim=True).clamp(min=1e-9)


class Halved(BiasPosition):
    """Halves the score of keys behind the query."""

    heads = None

    def forward(self, scores: Tensor, site) -> Tensor:
        return torch.where(site.key < site.query, scores / 2, scores)


class Flipped(RotaryPosition):
    """Changes the sign of all vectors at odd positions."""

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        return vectors * (1 - 2 * (positions % 2))[..., None].to(vectors.dtype)


class Ramp(Sinusoidal):
    """Position / 10 in every dimension."""

    def forward(self, positions: Tensor) -> Tensor:
        return positions[..., None].expand(*positions.shape, self.width) / 10


def test_unknown_parts_are_computed_by_themselves():
    pipeline = random_model("sinusoidal")
    for part in attentions(pipeline):
        score = Manhattan(part.heads, part.dim)
        part.attention = Attention(score, bias=Halved(), normaliser=Squared())
        part.rotation = Flipped()
    pipeline.model.source.position = Ramp(12)
    trace = assert_follows_model(pipeline)
    explained = trace.explain("dec.0.self.scores", (1, 2, 1))
    factor = float(pipeline.model.decoder[0].self_attention.attention.score.factor.detach()[1])
    queries, keys = trace["dec.0.self.q.rotated"][1, 2], trace["dec.0.self.k.rotated"][1, 1]
    expected = -factor * float((queries.double() - keys.double()).abs().sum())
    assert explained.result == pytest.approx(expected, rel=1e-9)
    assert explained.operation == "score computed by Manhattan"
    assert explained.formula == "−f Σᵢ |q[i] − k[i]|"
    used = {one.name for term in explained.computation.terms for one in term.operands}
    assert used == {"dec.0.self.q.rotated", "dec.0.self.k.rotated"}
    assert (
        trace.explain("enc.0.self.weights", (0, 0, 0)).operation == "normaliser computed by Squared"
    )
    assert "computed by Halved" in str(trace.explain("enc.0.self.biased", (0, 2, 1)))
    parameter = "decoder.0.self_attention.attention.score.factor"
    assert trace.operation("dec.0.self.scores").weights == (parameter,)


def test_unknown_parts_in_a_recurrent_model():
    pipeline = random_model("additive")
    pipeline.model.attention.attention = Attention(Manhattan(1, 8), normaliser=Squared())
    trace = assert_follows_model(pipeline)
    assert trace.explain("attn.energy", (0, 1, 2)).operation == "score computed by Manhattan"


def test_a_subclass_is_not_taken_for_its_base():
    class Doubled(ScaledDot):
        def as_dot(self, queries, keys):
            queries, keys, scale = super().as_dot(queries, keys)
            return queries, keys, 2 * scale

    pipeline = random_model("none")
    for part in attentions(pipeline):
        part.attention = Attention(Doubled(part.heads, part.dim))
    trace = assert_follows_model(pipeline)
    assert trace.explain("dec.0.self.scores", (0, 0, 0)).operation == "score computed by Doubled"


def test_edits_without_positions_drop_unknown_parts():
    pipeline = random_model("none")
    plain = record(pipeline, SOURCE, TARGET)
    for part in heads_of(pipeline, "encoder"):
        part.attention = Attention(ScaledDot(4, 3), bias=Halved())
        part.rotation = Flipped()
    edited = record(pipeline, SOURCE, TARGET, edits=[{"kind": "unpositioned"}])
    torch.testing.assert_close(edited["out.logits"], plain["out.logits"], rtol=1e-4, atol=1e-4)


def test_temperature_divides_scores_of_any_normaliser():
    pipeline = assemble("none", normaliser="sparsemax")
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
    """A module that the tracer cannot know."""

    def forward(self, *arguments, **options):
        return arguments[0]


def test_a_bias_in_a_recurrent_attention_is_refused():
    pipeline = random_model("dot")
    pipeline.model.attention.attention.bias = Alibi(1)
    with pytest.raises(RegardError, match=r"^cannot trace attn: it has the bias Alibi"):
        record(pipeline, SOURCE, TARGET)


def test_a_trace_that_leaves_the_model_is_refused():
    """A hook changes the model's numbers, which no description of its parts can show."""
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
