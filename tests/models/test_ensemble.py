"""An ensemble is a model: the mean of its members' probabilities, at once and step by step, under
every search.
"""

import pytest
import torch

import regard
from regard import bundle as bundles
from regard.errors import RegardError
from regard.inference import inference_model, search_all
from regard.models import Ensemble, build
from regard.ragged import Ragged
from regard.search import Beam, Greedy, LengthPenalty
from tests.models.test_branch import Walk
from tests.models.test_matrix import SETTINGS, SOURCE, TARGET, ids, made
from tests.test_pipeline import random_pipeline as pipeline

DIFFERENT = [
    "transformer-rotary-pre",
    "transformer-shaw-pre",
    "gru-bahdanau-additive",
    "lstm-none-additive",
]


def mixed() -> Ensemble:
    return Ensemble([made(name) for name in DIFFERENT])


@torch.no_grad()
def test_two_are_the_mean_of_their_probabilities():
    one, other = made("transformer-rotary-pre"), made("gru-bahdanau-additive")
    source, prefix = ids([5, 1, 7], SOURCE), ids([2, 6, 3], TARGET)
    found = Ensemble([one, other])(source, prefix)
    chances = [model(source, prefix).values.double().exp() for model in (one, other)]
    by_hand = sum(chance / chance.sum(1, keepdim=True) for chance in chances) / 2
    torch.testing.assert_close(found.values.double().exp(), by_hand, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.values.exp().sum(1), torch.ones(11), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_one_is_the_model():
    model, source, prefix = (
        made("transformer-rotary-pre"),
        ids([5, 1, 7], SOURCE),
        ids([2, 6, 3], TARGET),
    )
    truth = model(source, prefix).values.log_softmax(-1)
    torch.testing.assert_close(
        Ensemble([model])(source, prefix).values, truth, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("way", [lambda model: model, inference_model], ids=["plain", "swift"])
@torch.no_grad()
def test_steps_are_the_whole_while_rows_leave_branch_and_change_places(way):
    walk = Walk(way(mixed()), ids([5, 2, 7], SOURCE))
    walk.step()
    walk.branch([0, 0, 1, 1, 2, 2])
    walk.step()
    walk.branch([1, 0, 5, 4], kept=[0, 2])
    walk.step()
    walk.select([3, 0, 0])
    assert walk.owners == [2, 0, 0]
    walk.step()


@torch.no_grad()
def test_no_member_copies_the_source_for_beams():
    model, source = mixed(), ids([5, 2], SOURCE)
    state = model.start(model.encode(source))
    branched = state.branch(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert all(
        after.memory is before.memory
        for after, before in zip(branched.members, state.members, strict=True)
    )


def test_a_fast_ensemble_is_made_of_fast_members():
    kinds = [type(member).__name__ for member in inference_model(mixed())]
    assert kinds == ["FastTransformer", "FastTransformer", "Recurrent", "Recurrent"]


@pytest.mark.parametrize(
    "search", [Greedy(), Beam(3, 3, LengthPenalty(1.0))], ids=["greedy", "beam"]
)
def test_copies_of_a_model_answer_as_the_model(search):
    model = made("transformer-rotary-pre")
    sources = [row.tolist() for row in ids([5, 1, 7, 3], SOURCE)]
    greedy_single, copied = (
        search_all(search, m, sources, most=6) for m in (model, Ensemble([model, model, model]))
    )
    for one, other in zip(greedy_single, copied, strict=True):
        assert [found.ids for found in one.hypotheses] == [found.ids for found in other.hypotheses]
        assert one.hypotheses[0].logps == pytest.approx(other.hypotheses[0].logps, abs=1e-5)


def test_several_folders_load_as_one_and_look_with_all_members(tmp_path):
    first, second = pipeline("transformer"), pipeline("recurrent")
    for name, one in (("first", first), ("second", second)):
        bundles.save(tmp_path / name, one.bundle)
    both = regard.load([tmp_path / "first", tmp_path / "second"])
    assert isinstance(both.model, Ensemble)
    chances = [
        torch.tensor(one.score("zebra", "Z IY").logps).double().exp() for one in (first, second)
    ]
    assert torch.tensor(both.score("zebra", "Z IY").logps).exp().tolist() == pytest.approx(
        (sum(chances) / 2).tolist(), abs=1e-5
    )
    said = both("zebra", alignment=True)
    assert said.alignment.sum(1).tolist() == pytest.approx([1.0] * len(said.alignment), abs=1e-5)
    assert len(both.model.cross_attentions()) == len(first.model.cross_attentions()) + len(
        second.model.cross_attentions()
    )


def test_what_cannot_be_one_is_refused(tmp_path):
    bundles.save(tmp_path / "words", pipeline(kind="words").bundle)
    bundles.save(tmp_path / "pieces", pipeline(kind="characters").bundle)
    with pytest.raises(RegardError, match="same tokenizers; these 2 models have 2 different ones"):
        regard.load([tmp_path / "words", tmp_path / "pieces"])
    with pytest.raises(RegardError, match="these 0 models have 0 different ones"):
        regard.load([])
    with pytest.raises(RegardError, match="at least one model"):
        Ensemble([])
    larger = build(SETTINGS["gru-bahdanau-additive"], SOURCE, TARGET + 1).eval()
    odd = Ensemble([made("gru-bahdanau-additive"), larger])
    with pytest.raises(RegardError, match="theirs have 17, 18 tokens"):
        odd(Ragged.of([torch.tensor([1])]), Ragged.of([torch.tensor([1])]))
