"""A pipeline whose model changes, is shared by threads or pickled."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import regard
from regard.errors import RegardError
from regard.kernels.fused_linear import ReadOnlyHook

SAID = "AH T EH N SH AH N"


class Adapted(nn.Linear):
    """A layer with something beside it, as adapters are."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__(of.in_features, of.out_features, of.bias is not None)
        self.load_state_dict(of.state_dict())
        self.down, self.up = (
            nn.Linear(of.in_features, 2, bias=False),
            nn.Linear(2, of.out_features, bias=False),
        )

    def forward(self, x):
        return super().forward(x) + self.up(self.down(x))


@pytest.fixture
def t() -> regard.Pipeline:
    return regard.load("spelling", device="cpu")


def consistent(t: regard.Pipeline) -> bool:
    """Whether search and score speak of one model."""
    answer = t("attention", t.search(beam=1))
    return answer.logp == pytest.approx(t.score("attention", str(answer)).logp, abs=1e-4)


def hooked(t):
    t.model.decoder[0].cross_attention.register_forward_hook(
        lambda part, given, made: made.like(made.values * 0)
    )


def adapted(t):
    for layer in t.model.decoder:
        layer.feed_forward.outer = Adapted(layer.feed_forward.outer)


def loaded(t):
    t.model.load_state_dict(
        {name: 0.9 * weight for name, weight in t.model.state_dict().items()}, assign=True
    )


def replaced(t):
    t.model = regard.load("spelling", device="cpu").model
    with torch.no_grad():
        t.model.output.table.mul_(0.9)


def written_through(t):
    for weight in t.model.parameters():
        weight.data.mul_(0.9)
    t.refresh_weights()


@pytest.mark.parametrize("change", [hooked, adapted, loaded, replaced, written_through])
@pytest.mark.parametrize("early", [True, False])
def test_search_follows_every_change_of_the_model(t, change, early):
    was = t.score("attention", SAID).logp
    if early:
        t("attention")  # caches the inference model
    assert consistent(t)
    change(t)
    assert t.score("attention", SAID).logp != was
    assert consistent(t)


@pytest.mark.parametrize("name", ["spelling", "spelling-recurrent"])
def test_hooks_do_not_change_answers(name):
    t = regard.load(name, device="cpu")
    words = ["attention", "queue", "a", "rhythm"]
    before = [(t(word), t(word, t.search(beam=1))) for word in words]
    heard = []
    for part in t.model.modules():
        part.register_forward_hook(lambda part, given, made: heard.append(type(part).__name__))
    for word, (beam, greedy) in zip(words, before, strict=True):
        assert str(t(word)) == str(beam)
        assert t(word).logps == pytest.approx(beam.logps, abs=1e-4)
        assert str(t(word, t.search(beam=1))) == str(greedy)
    assert "MultiHead" in heard or "Attention" in heard


def test_reading_weights_keeps_the_inference_model(t):
    inference_model, inside = t.inference_model, []
    part = t.model.decoder[0].cross_attention.attention

    class Meanwhile(ReadOnlyHook):
        def __call__(self, *_) -> None:
            inside.append(t.inference_model)

    hook = part.register_forward_pre_hook(Meanwhile())
    t.align("attention")  # hangs its own hooks on every attention
    hook.remove()
    assert all(one is inference_model for one in inside)
    assert inside


def test_white_space_around_a_target_is_ignored(t):
    assert t.score("attention\n", f"{SAID}\n").logp == t.score("attention", SAID).logp
    assert regard.record(t, "attention", f" {SAID}\n").answer.ids == t.score("attention", SAID).ids


def test_numbers_do_not_depend_on_training_mode(t):
    before = t.score("attention", SAID).logps
    t.model.train()
    assert t.score("attention", SAID).logps == before
    assert regard.record(t, "attention").check < 1e-3
    plain = regard.load("spelling", device="cpu")
    assert torch.equal(t.align("attention").alignment, plain.align("attention").alignment)
    assert all(part.training for part in t.model.modules())


def test_nan_weights_are_reported(t):
    with torch.no_grad():
        next(t.model.parameters()).fill_(float("nan"))
    for search in (None, t.search(beam=1)):
        with pytest.raises(RegardError, match="the model's outputs are not finite"):
            t("cat", search)


@pytest.fixture(params=["spelling", "spelling-recurrent"])
def included(request):
    return regard.load(request.param)


def test_threads_do_not_share_attention_weights(included):
    words = ["banana", "cabana", "banish", "bandit"]
    alone = [included.align(word).alignment for word in words]

    def agrees(i: int) -> bool:
        included("attention")
        return torch.equal(included.align(words[i % 4]).alignment, alone[i % 4])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(agrees, range(12)))


def test_search_uses_changed_weights(included):
    greedy = included.search(beam=1)
    words = ["queue", "attention", "rhythm"]
    for word in words:
        included(word, greedy)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in included.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3 * parameter.std())
    for word in words:
        answer, fresh = included(word, greedy), regard.Pipeline(included.bundle)(word, greedy)
        assert (answer.ids, answer.logps) == (fresh.ids, fresh.logps)


def test_used_pipeline_can_be_pickled(included):
    answer = included("attention")
    again = pickle.loads(pickle.dumps(included))("attention")
    assert (again.ids, again.logps) == (answer.ids, answer.logps)


def test_default_dtype_does_not_matter():
    torch.set_default_dtype(torch.bfloat16)
    try:
        included = regard.load("spelling")
    finally:
        torch.set_default_dtype(torch.float32)
    assert included("attention").text == regard.load("spelling")("attention").text
