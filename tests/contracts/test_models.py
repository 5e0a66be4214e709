"""Every registry entry in a model of each family: it trains, and every engine computes what it
defines.
"""

import pytest
import torch

from regard.inference import ENGINES, EngineError, inference_model, search_all
from regard.models import build
from regard.ragged import Ragged
from regard.search import Beam, Greedy, LengthPenalty
from regard.text import BEGIN, END, train_tokenizer
from tests.contracts.model_cases import CASES, SOURCE, USER_PARTS, make


@pytest.fixture(autouse=True)
def user_parts(monkeypatch: pytest.MonkeyPatch):
    """Registers user-defined parts for the duration of a test."""
    for registry, name, part in USER_PARTS:
        monkeypatch.setitem(registry, name, part)


every_case = pytest.mark.parametrize("name", CASES)
SEARCHES = {"greedy": Greedy(), "beam": Beam(3, n_best=2, length_penalty=LengthPenalty(1.0))}


def sources(count: int = 3) -> list[list[int]]:
    """Sources of mixed lengths, without END."""
    draw = torch.Generator().manual_seed(1)
    lengths = (5, 1, 7)[:count]
    return [torch.randint(3, SOURCE, (n,), generator=draw).tolist() for n in lengths]


def teacher_forced(model, source: list[int], target: list[int]) -> float:
    """log p(target, END | source) by one pass over all positions, in float64."""
    model = model.double()
    prefix = Ragged.of([torch.tensor([BEGIN, *target])])
    with torch.no_grad():
        logits = model(Ragged.of([torch.tensor([*source, END])]), prefix).values
    logps = logits.log_softmax(-1)
    return float(logps[torch.arange(len(target) + 1), torch.tensor([*target, END])].sum())


@every_case
@pytest.mark.parametrize("engine", ENGINES)
def test_search_logp_is_teacher_forced_logp(name: str, engine: str):
    model = make(name)
    if name.startswith("recurrent") and engine == "fast":
        with pytest.raises(EngineError, match="this is a Recurrent"):
            inference_model(model, engine)
        return
    fast = inference_model(model, engine)
    exact = make(name)
    for search in SEARCHES.values():
        results = search_all(search, fast, sources(), most=5)
        for source, result in zip(sources(), results, strict=True):
            for hypothesis in result.hypotheses:
                expected = teacher_forced(exact, source, hypothesis.ids)
                assert hypothesis.logp == pytest.approx(expected, abs=1e-4)


@every_case
def test_one_training_step_moves_weights_and_stays_finite(name: str):
    model = make(name).train()
    source = Ragged.of([torch.tensor([*ids, END]) for ids in sources()])
    prefix = Ragged.of([torch.tensor([BEGIN, 4, 5, 6]) for _ in sources()])
    losses = []
    for _ in range(2):
        logits = model(source, prefix).values
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([4, 5, 6, END] * 3))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for label, parameter in model.named_parameters():
                if parameter.grad is not None:  # the uniform normaliser ignores its scores
                    assert parameter.grad.isfinite().all(), label
                    parameter -= 0.1 * parameter.grad
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]


@every_case
def test_saved_and_loaded_weights_give_the_same_logits(name: str, tmp_path):
    from regard import bundle

    letters = train_tokenizer("characters", ["abcdefgh"])
    settings = CASES[name].model_dump()
    torch.manual_seed(3)
    model = build(CASES[name], len(letters), len(letters)).eval()
    bundle.save(tmp_path / "bundle", bundle.Bundle(model, letters, letters, CASES[name], {}))
    loaded = bundle.load(tmp_path / "bundle").model
    assert loaded.settings.model_dump() == settings
    source = Ragged.of([torch.tensor([*ids, END]) for ids in sources()])
    prefix = Ragged.of([torch.tensor([BEGIN, 4, 5]) for _ in sources()])
    with torch.no_grad():
        ours, theirs = model(source, prefix).values, loaded.eval()(source, prefix).values
    assert torch.equal(ours, theirs)


def test_an_unknown_module_is_refused_by_name_and_auto_runs_it():
    class Halved(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) / 2

    model = make("transformer-score-scaled-dot")
    model.decoder[1].feed_forward.outer = Halved(10, 12)
    with pytest.raises(EngineError, match=r"decoder\.1\.feed_forward\.outer is a Halved"):
        inference_model(model, "fast")
    (result,) = search_all(Greedy(), inference_model(model), sources(1), most=6)
    expected = teacher_forced(model, sources(1)[0], result.hypotheses[0].ids)
    assert result.hypotheses[0].logp == pytest.approx(expected, abs=1e-4)


def test_replaced_parts_are_searched_as_the_model_defines_them():
    import regard
    from regard.attention import Attention
    from regard.attention.scores import Cosine

    pipeline = regard.load("spelling")
    for layer in pipeline.model.decoder:
        layer.self_attention.attention = Attention(Cosine(4, 32), normaliser="sparsemax")
    answer = pipeline("attention")
    assert answer.logp == pytest.approx(pipeline.score("attention", answer.text).logp, abs=1e-4)


def test_settings_change_what_the_model_computes():
    source = Ragged.of([torch.tensor([4, 5, 6, 7, END])])
    prefix = Ragged.of([torch.tensor([BEGIN, 4, 5, 6])])
    plain = make("transformer-score-scaled-dot")
    for changes in ({"window": 2}, {"normaliser": "sparsemax"}, {"score": "cosine"}):
        other = make("transformer-score-scaled-dot", **changes)
        other.load_state_dict(plain.state_dict(), strict=False)
        with torch.no_grad():
            assert not torch.allclose(plain(source, prefix).values, other(source, prefix).values)


def test_an_unknown_part_names_the_way_to_import_it():
    from regard.config import TransformerSettings
    from regard.errors import RegardError
    from regard.models import build

    with pytest.raises(RegardError, match=r"unknown normaliser 'mine'.*--import FILE"):
        build(TransformerSettings(normaliser="mine"), 5, 5)
    with pytest.raises(RegardError, match="'entmax' has no option 'alhpa'; did you mean 'alpha'"):
        build(TransformerSettings(normaliser={"kind": "entmax", "alhpa": 1.5}), 5, 5)
