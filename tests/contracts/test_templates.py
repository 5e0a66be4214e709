"""Contract of templates: every engine, the trace and training use the same special tokens.

Expected values come from teacher forcing in float64 and from enumerating all short outputs.
"""

from itertools import product

import pytest
import torch

from regard.bundle import Bundle, load, save
from regard.inference import inference_model, search_all
from regard.loading import load as load_pipeline
from regard.models import Model
from regard.native import NativeOptions
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.search import Beam, Greedy, LengthPenalty, Sampling
from regard.search.constraints import LexicalConstraints, max_length, min_length
from regard.teacher_forcing import next_logps, target_logps
from regard.text import StaticShape, Template, TrainingBatch, pack_batch, unpack_batch
from regard.text.batching import Batch
from regard.trace import beam_tree, record
from regard.training.objective import Objective
from tests.contracts.model_cases import SOURCE, TARGET, make, make_pipeline, random_ids
from tests.native.native_models import native_copy
from tests.native_build import require_native_engine

UNUSUAL = Template(
    unknown=3, end=0, start=(0, 7), source_prefix=(5,), source_suffix=(0,), banned=(1, 6)
)
NAMES = (
    *("transformer-position-rotary", "transformer-position-learned"),
    *("recurrent-bahdanau-additive", "recurrent-lstm-luong"),
)
SOURCES = random_ids([4, 1, 6], SOURCE)
TARGETS = random_ids([3, 0, 5], TARGET)
ALLOWED = [token for token in range(TARGET) if token not in (0, 1, 6)]
MOST = 5
engines = pytest.mark.parametrize("engine", ["fast", "plain", "native"])
names = pytest.mark.parametrize("name", NAMES)


@torch.no_grad()
def expected_logps(model: Model, source: list[int], target: list[int]) -> torch.Tensor:
    """The log-probabilities after each position from token 7 on, in float64."""
    encoder, decoder = torch.tensor([5, *source, 0]), torch.tensor([0, 7, *target])
    logits = model(Ragged.of([encoder]), Ragged.of([decoder])).values
    assert logits.dtype == torch.float64
    return logits[1:].log_softmax(-1)


def expected_score(model: Model, source: list[int], target: list[int]) -> list[float]:
    """The log-probability of each target token and of the end token 0."""
    logps = expected_logps(model, source, target)
    return [float(row[token]) for row, token in zip(logps, [*target, 0], strict=True)]


def expected_greedy(model: Model, source: list[int], most: int = MOST) -> list[int]:
    """The most likely allowed token at each step."""
    ids: list[int] = []
    while len(ids) < most:
        row = expected_logps(model, source, ids)[-1]
        row[[1, 6]] = -torch.inf
        if (token := int(row.argmax())) == 0:
            break
        ids.append(token)
    return ids


@torch.no_grad()
def best_outputs(model: Model, source: list[int]) -> list[tuple[float, list[int]]]:
    """All outputs of at most two tokens by their mean log-probability, best first."""
    pairs = [list(ids) for ids in product(ALLOWED, repeat=2)]
    encoder = Ragged.of([torch.tensor([5, *source, 0])] * len(pairs))
    logits = model(encoder, Ragged.of([torch.tensor([0, 7, *ids]) for ids in pairs])).values
    logps = logits.unflatten(0, (len(pairs), 4))[:, 1:].log_softmax(-1)
    found = {(): float(logps[0, 0, 0])}
    for row, (a, b) in zip(logps, pairs, strict=True):
        found[a,] = float(row[0, a] + row[1, 0]) / 2
        found[a, b] = float(row[0, a] + row[1, b] + row[2, 0]) / 3
    return sorted(((score, list(ids)) for ids, score in found.items()), reverse=True)


def run(engine: str, model: Model, search, options: NativeOptions, most: int = MOST):
    """The hypotheses of SOURCES on an engine."""
    if engine == "native":
        require_native_engine()
        native = native_copy(model, (SOURCE, TARGET))
        return native.search(SOURCES, [most] * len(SOURCES), options)
    if engine == "fast" and "Recurrent" in type(model).__name__:
        engine = "plain"
    copy = inference_model(model, engine)
    results = search_all(search, copy, SOURCES, max_length=most, template=UNUSUAL)
    return [result.hypotheses for result in results]


@names
@engines
def test_greedy_outputs_equal_float64(name, engine):
    model = make(name)
    found = run(engine, model, Greedy(), NativeOptions(template=UNUSUAL))
    exact = make(name).double()
    for source, (best,) in zip(SOURCES, found, strict=True):
        assert best.ids == expected_greedy(exact, source)
        assert best.logps == pytest.approx(expected_score(exact, source, best.ids), abs=1e-4)


@names
@engines
def test_a_wide_beam_finds_the_best_outputs(name, engine):
    """With at most two tokens, a beam of 128 is exhaustive."""
    model, exact = make(name), make(name).double()
    options = NativeOptions(beam=128, n_best=4, length_penalty=1.0, template=UNUSUAL)
    search = Beam(128, n_best=4, length_penalty=LengthPenalty(1.0))
    found = run(engine, model, search, options, most=2)
    for source, best in zip(SOURCES, found, strict=True):
        expected = best_outputs(exact, source)[:4]
        assert [one.ids for one in best] == [ids for _, ids in expected]
        assert [one.score for one in best] == pytest.approx([one for one, _ in expected], abs=1e-4)


@engines
def test_constraints_know_the_end(engine):
    model = make(NAMES[0])
    wanted = {"min_length": 2, "max_length": 3}
    limits = min_length(2), max_length(3)
    for beam in (1, 3):
        options = NativeOptions(beam=beam, **wanted, template=UNUSUAL)
        search = Greedy(limits) if beam == 1 else Beam(beam, constraints=limits)
        for best, *_ in run(engine, model, search, options, most=9):
            assert 2 <= len(best.ids) <= 3
            assert not {0, 1, 6} & {*best.ids}
    words = [[8, 9], [4]]
    options = NativeOptions(beam=4, required=words, template=UNUSUAL)
    search = Beam(4, required=LexicalConstraints(words))
    for best, *_ in run(engine, model, search, options, most=9):
        assert 4 in best.ids
        assert (8, 9) in zip(best.ids, best.ids[1:], strict=False)


@names
@engines
def test_samples_are_never_banned(name, engine):
    model, exact = make(name), make(name).double()
    search = Sampling(8, seed=3, temperature=2.0)
    options = NativeOptions(sample=True, n_best=8, seed=3, temperature=2.0, template=UNUSUAL)
    found = run(engine, model, search, options)
    assert len({tuple(one.ids) for one in found[0]}) > 2
    for source, samples in zip(SOURCES, found, strict=True):
        for one in samples:
            assert not {0, 1, 6} & {*one.ids}
            assert one.logps == pytest.approx(expected_score(exact, source, one.ids), abs=1e-4)


@names
def test_scores_equal_float64(name):
    require_native_engine()
    model, exact = make(name), make(name).double()
    native = native_copy(model, (SOURCE, TARGET)).score(SOURCES, TARGETS, UNUSUAL)
    ours = target_logps(model, SOURCES, TARGETS, UNUSUAL)
    for source, target, one, other in zip(SOURCES, TARGETS, ours, native, strict=True):
        expected = expected_score(exact, source, target)
        assert one == pytest.approx(expected, abs=1e-4)
        assert other.logps == pytest.approx(expected, abs=1e-4)
    following = next_logps(model, SOURCES[0], TARGETS[0], UNUSUAL)
    expected = expected_logps(exact, SOURCES[0], TARGETS[0])[-1]
    torch.testing.assert_close(following[2:6].double(), expected[2:6], atol=1e-4, rtol=0)
    assert following[[1, 6]].tolist() == [-torch.inf] * 2


def unusual_pipeline(name: str, template: Template = UNUSUAL) -> Pipeline:
    made = make_pipeline(name).bundle
    parts = made.model, made.source, made.target, made.settings, {}
    return Pipeline(Bundle(*parts, template=template))


@names
def test_trace_equals_float64(name):
    pipeline, exact = unusual_pipeline(name), make(name).double()
    source = pipeline.bundle.source.encode("bead")
    trace = record(pipeline, "bead")
    target = trace.answer.ids
    expected = expected_score(exact, source, target)
    assert [piece.id for piece in trace.source] == [5, *source, 0]
    assert [piece.id for piece in trace.target] == [0, 7, *target]
    assert [piece.id for piece in trace.following] == [7, *target, 0]
    assert trace.answer.logps == pytest.approx(expected, abs=1e-4)
    assert float(trace["out.total"]) == pytest.approx(sum(expected), abs=1e-4)
    assert trace.explain("out.total", ()).result == pytest.approx(sum(expected), abs=1e-4)
    assert trace.check < 3e-5
    assert pipeline("bead").ids == target
    given = record(pipeline, "bead", "CAB")
    expected = expected_score(exact, source, pipeline.bundle.target.encode("CAB"))
    assert float(given["out.total"]) == pytest.approx(sum(expected), abs=1e-4)


def test_edited_models_generate_with_the_template():
    pipeline, exact = unusual_pipeline(NAMES[0]), make(NAMES[0]).double()
    source = pipeline.bundle.source.encode("bead")
    edited = record(pipeline, "bead", edits=[{"kind": "temperature", "value": 1.5}], max_length=5)
    assert edited.answer.ids == expected_greedy(exact, source)


@names
def test_alignment_has_a_row_for_each_output_token(name):
    pipeline = unusual_pipeline(name)
    answer = pipeline.align("bead", "CAB")
    assert answer.alignment.shape == (4, 5)  # CAB and the end; bead and its special tokens
    weights = pipeline("bead", weights=True).weights
    assert all(maps.shape[1] >= 2 for maps in weights.values())
    torch.testing.assert_close(answer.alignment.sum(1), torch.ones(4))
    trace = record(pipeline, "bead", "CAB")
    cross = [one.name for one in trace.attentions if one.kind == "cross"]
    expected = torch.stack([trace[f"{one}.weights"].mean(0) for one in cross]).mean(0)[1:]
    torch.testing.assert_close(answer.alignment[:, :4], expected[:, 1:5], rtol=1e-4, atol=1e-5)


def test_beam_tree_ends_with_the_end_token():
    pipeline = unusual_pipeline(NAMES[0])
    tree = beam_tree(pipeline, "bead", Beam(3, n_best=3))
    best = pipeline.best("bead", 3, beam=3)
    assert [tree.ids(number) for number in tree.answers] == [one.ids for one in best]
    assert all(tree.nodes[number].token == 0 for number in tree.answers)
    assert not any(node.token in (1, 6) for node in tree.nodes)


@names
def test_engines_of_a_saved_bundle_agree(name, tmp_path):
    require_native_engine()
    made = unusual_pipeline(name).bundle
    save(tmp_path / "bundle", made)
    assert load(tmp_path / "bundle").template == UNUSUAL
    exact, source = make(name).double(), made.source.encode("bead")
    for engine in ("torch", "native"):
        pipeline = load_pipeline(tmp_path / "bundle", engine=engine)
        assert pipeline("bead", beam=1, max_length=MOST).ids == expected_greedy(exact, source)
        *_, streamed = pipeline._searcher.stream(
            pipeline._searcher.resolve(beam=1, max_length=MOST), source
        )
        assert streamed == (expected_greedy(exact, source), True)
        target = made.target.encode("CAB")
        expected = expected_score(exact, source, target)
        assert pipeline.score("bead", "CAB").logps == pytest.approx(expected, abs=1e-4)


@names
def test_training_does_not_predict_start_tokens(name):
    exact = make(name).double()
    rows = torch.arange(len(SOURCES))
    source, target = (
        Ragged.of([torch.tensor(ids, dtype=torch.long) for ids in side])
        for side in (SOURCES, TARGETS)
    )
    batch = Batch(source, target, rows, 3, len(target.values), len(source.values))
    losses = [
        -logp
        for source_ids, target_ids in zip(SOURCES, TARGETS, strict=True)
        for logp in expected_score(exact, source_ids, target_ids)
    ]
    objective = Objective(make(name), template=UNUSUAL)
    loss = objective(batch)
    assert loss.item() == pytest.approx(sum(losses) / len(losses), abs=1e-4)
    loss.backward()
    assert all(part.grad is not None for part in objective.model.parameters())
    if not objective.model.static_shapes:
        return
    shape = StaticShape.from_batch(batch, 64, UNUSUAL)
    packed = pack_batch(batch, shape, template=UNUSUAL)
    weight = TrainingBatch.from_batch(batch, UNUSUAL).token_weight
    padded = objective(unpack_batch(packed, shape, weight))
    assert padded.item() == pytest.approx(loss.item(), abs=1e-5)


def test_languages_choose_the_tokens_of_a_call(tmp_path):
    require_native_engine()
    template = Template(
        end=0,
        start=(0, 7),
        source_prefix=(5,),
        source_suffix=(0,),
        banned=(1, 6),
        languages={"a": 7, "b": 8, "c": 5},
    )
    made = unusual_pipeline(NAMES[0], template).bundle
    save(tmp_path / "bundle", made)
    exact, ids = make(NAMES[0]).double(), made.target.encode("CAB")
    for code, token in (("a", 7), ("b", 8)):
        encoder = Ragged.of([torch.tensor([token, *made.source.encode("bead"), 0])])
        decoder = Ragged.of([torch.tensor([0, token, *ids])])
        logps = exact(encoder, decoder).values[1:].log_softmax(-1)
        expected = [float(row[id].detach()) for row, id in zip(logps, [*ids, 0], strict=True)]
        codes = {"source_language": code, "target_language": code}
        for engine in ("torch", "native"):
            pipeline = load_pipeline(tmp_path / "bundle", engine=engine)
            given = pipeline.score("bead", "CAB", **codes)
            assert given.logps == pytest.approx(expected, abs=1e-4)
            chosen = load_pipeline(tmp_path / "bundle", engine=engine, **codes)
            assert chosen.score("bead", "CAB").logps == pytest.approx(expected, abs=1e-4)
            assert chosen("bead").ids == pipeline("bead", **codes).ids
    with pytest.raises(Exception, match=r"^unknown target language 'x'; choose from a, b, c$"):
        pipeline("bead", target_language="x")
