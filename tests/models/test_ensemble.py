"""An ensemble is a model: the mean of its members' probabilities, for every search."""

import pytest
import torch

import regard
from regard import bundle as bundles
from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.models import Ensemble, build
from regard.search import Beam, Greedy, LengthPenalty
from tests.contracts.model_cases import CASES, SOURCE, TARGET, make
from tests.models.tracked_decoding import TrackedDecoding, random_batch
from tests.test_pipeline import random_pipeline

TRANSFORMER, RECURRENT = "transformer-position-rotary", "recurrent-bahdanau-additive"
DIFFERENT = [TRANSFORMER, "transformer-position-shaw", RECURRENT, "recurrent-lstm-none"]


def mixed_ensemble() -> Ensemble:
    return Ensemble([make(name) for name in DIFFERENT])


@torch.no_grad()
def test_two_members_give_the_mean_of_their_probabilities():
    one, other = make(TRANSFORMER), make(RECURRENT)
    source, prefix = random_batch([5, 1, 7]), random_batch([2, 6, 3], TARGET)
    logps = Ensemble([one, other])(source, prefix).values
    exps = [model(source, prefix).values.double().exp() for model in (one, other)]
    expected = sum(each / each.sum(1, keepdim=True) for each in exps) / 2
    torch.testing.assert_close(logps.double().exp(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logps.exp().sum(1), torch.ones(11), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_an_ensemble_of_one_is_the_model():
    model = make(TRANSFORMER)
    source, prefix = random_batch([5, 1, 7]), random_batch([2, 6, 3], TARGET)
    expected = model(source, prefix).values.log_softmax(-1)
    logps = Ensemble([model])(source, prefix).values
    torch.testing.assert_close(logps, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("prepare", [lambda model: model, inference_model], ids=["plain", "fast"])
@torch.no_grad()
def test_steps_equal_the_full_pass_while_rows_change(prepare):
    decoding = TrackedDecoding(prepare(mixed_ensemble()), random_batch([5, 2, 7]))
    decoding.step()
    decoding.branch([0, 0, 1, 1, 2, 2])
    decoding.step()
    decoding.branch([1, 0, 5, 4], sources=[0, 2])
    decoding.step()
    decoding.select([3, 0, 0])
    assert decoding.owners == [2, 0, 0]
    decoding.step()


@torch.no_grad()
def test_no_member_copies_the_source_for_beams():
    model = mixed_ensemble()
    state = model.start(model.encode(random_batch([5, 2])))
    branched = state.branch(torch.tensor([0, 0, 0, 1, 1, 1]))
    for after, before in zip(branched.members, state.members, strict=True):
        assert after.memory is before.memory


def test_a_fast_ensemble_has_fast_members():
    kinds = [type(member).__name__ for member in inference_model(mixed_ensemble())]
    assert kinds == ["FastTransformer", "FastTransformer", "Recurrent", "Recurrent"]


@pytest.mark.parametrize(
    "search", [Greedy(), Beam(3, 3, LengthPenalty(1.0))], ids=["greedy", "beam"]
)
def test_copies_of_a_model_give_its_outputs(search):
    model = make(TRANSFORMER)
    sources = [row.tolist() for row in random_batch([5, 1, 7, 3], SOURCE)]
    single, copied = (
        search_all(search, m, sources, max_length=6)
        for m in (model, Ensemble([model, model, model]))
    )
    for one, other in zip(single, copied, strict=True):
        assert [found.ids for found in one.hypotheses] == [found.ids for found in other.hypotheses]
        assert one.hypotheses[0].logps == pytest.approx(other.hypotheses[0].logps, abs=1e-5)


def test_several_folders_load_as_one_ensemble(tmp_path):
    first, second = random_pipeline("transformer"), random_pipeline("recurrent")
    for name, pipeline in (("first", first), ("second", second)):
        bundles.save(tmp_path / name, pipeline.bundle)
    both = regard.load([tmp_path / "first", tmp_path / "second"])
    assert isinstance(both.model, Ensemble)
    logps = [torch.tensor(one.score("zebra", "Z IY").logps).double() for one in (first, second)]
    expected = sum(each.exp() for each in logps) / 2
    probabilities = torch.tensor(both.score("zebra", "Z IY").logps).exp()
    assert probabilities.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    answer = both("zebra", alignment=True)
    sums = answer.alignment.sum(1).tolist()
    assert sums == pytest.approx([1.0] * len(answer.alignment), abs=1e-5)
    members = [len(one.model.cross_attentions()) for one in (first, second)]
    assert len(both.model.cross_attentions()) == sum(members)


def test_incompatible_models_are_refused(tmp_path):
    bundles.save(tmp_path / "words", random_pipeline(kind="words").bundle)
    bundles.save(tmp_path / "characters", random_pipeline(kind="characters").bundle)
    with pytest.raises(RegardError, match="same tokenizers; these 2 models have 2 different ones"):
        regard.load([tmp_path / "words", tmp_path / "characters"])
    with pytest.raises(RegardError, match="these 0 models have 0 different ones"):
        regard.load([])
    with pytest.raises(RegardError, match="at least one model"):
        Ensemble([])
    larger = build(CASES[RECURRENT], SOURCE, TARGET + 1).eval()
    with pytest.raises(RegardError, match="theirs have 13, 14 tokens"):
        Ensemble([make(RECURRENT), larger])(random_batch([1]), random_batch([1], TARGET))
