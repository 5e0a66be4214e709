"""Occlusion of source tokens, against edits, a shorter memory and scipy."""

import pytest
import torch
from scipy.stats import spearmanr

import regard
from regard.attention import Cache
from regard.errors import RegardError
from regard.models.recurrent import RecurrentState
from regard.ragged import Ragged
from regard.text import BEGIN
from regard.trace import agreement, alignment_matrix, occlusion, record
from tests.trace.random_models import ATTENDING, TRANSFORMERS, random_model

SOURCE, TARGET = "abandon", "AH B AE N"
RECURRENT = [kind for kind in ATTENDING if kind not in TRANSFORMERS]


@pytest.fixture(scope="module")
def transformer():
    return regard.load("spelling")


def target_logps(trace) -> torch.Tensor:
    """The log-probability of each target token."""
    return trace["out.logprobs"].gather(1, torch.tensor([[piece.id] for piece in trace.following]))[
        :, 0
    ]


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_occlusion_masks_the_token_in_every_attention(kind):
    """By patches of the masked scores, one attention after another."""
    transformer = random_model(kind)
    trace = record(transformer, SOURCE, TARGET)
    effects = occlusion(transformer, trace)
    assert effects.shape == (len(trace.following), len(trace.source))
    for hidden in (0, 3, len(trace.source) - 1):
        edits = []
        for one in trace.attentions:
            if one.key == "source":
                scores = record(transformer, SOURCE, TARGET, edits=edits)[
                    f"{one.name}.masked"
                ].clone()
                scores[..., hidden] = -1e5
                edits.append({"kind": "patch", "name": f"{one.name}.masked", "values": scores})
        truth = target_logps(trace) - target_logps(record(transformer, SOURCE, TARGET, edits=edits))
        torch.testing.assert_close(effects[:, hidden], truth, rtol=1e-3, atol=2e-4)
    assert effects.abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("kind", RECURRENT)
def test_occlusion_in_a_recurrent_model_shortens_the_memory(kind):
    recurrent = random_model(kind)
    trace, model = record(recurrent, SOURCE, TARGET), recurrent.model
    effects = occlusion(recurrent, trace)
    for hidden in (0, 4):
        state = model.start(
            model.encode(Ragged.of([torch.tensor([piece.id for piece in trace.source])]))
        )
        remaining = [at for at in range(len(trace.source)) if at != hidden]
        known = (part.tensor[:, :, remaining] for part in (state.memory.keys, state.memory.values))
        state = RecurrentState(state.hidden, Cache().append(*known), state.summary)
        left, token = [], BEGIN
        for piece in trace.following:
            logits, state = model.step(torch.tensor([token]), state)
            left.append(logits.log_softmax(-1)[0, piece.id])
            token = piece.id
        torch.testing.assert_close(
            effects[:, hidden], target_logps(trace) - torch.stack(left), rtol=1e-3, atol=1e-4
        )


def test_batched_occlusion_equals_all_at_once(transformer, monkeypatch):
    from regard.trace import occlusion as function

    trace = record(transformer, SOURCE)
    whole = occlusion(transformer, trace)
    for limit, few in (("BATCH_TOKENS", 40), ("LOGITS", 900)):
        monkeypatch.setitem(function.__globals__, limit, few)
        torch.testing.assert_close(occlusion(transformer, trace), whole, rtol=1e-4, atol=1e-5)
    assert not any(part._forward_pre_hooks for part in transformer.model.modules())
    assert torch.equal(record(transformer, SOURCE)["out.logits"], trace["out.logits"])


def test_agreement_is_spearman_correlation(transformer):
    trace = record(transformer, SOURCE)
    weights, effects = alignment_matrix(trace), occlusion(transformer, trace)
    truth = spearmanr(weights.flatten(), effects.flatten()).statistic
    assert agreement(weights, effects) == pytest.approx(truth, abs=1e-6)
    ties = torch.tensor([[1.0, 1.0, 2.0], [0.5, 2.0, 2.0]])
    assert agreement(ties, effects[:2, :3]) == pytest.approx(
        spearmanr(ties.flatten(), effects[:2, :3].flatten())[0]
    )
    assert agreement(ties, ties) == pytest.approx(1)
    assert agreement(ties, -ties) == pytest.approx(-1)
    assert agreement(ties, torch.ones(2, 3)) is None
    with pytest.raises(RegardError, match=r"one shape; got \(2, 3\) and \(3, 2\)"):
        agreement(ties, ties.T)


def test_an_edited_trace_is_refused(transformer):
    cut = {"kind": "ablate", "attention": "dec.0.cross", "head": 0}
    with pytest.raises(RegardError, match="record without edits"):
        occlusion(transformer, record(transformer, SOURCE, edits=[cut]))


def test_a_model_without_attention_is_refused():
    bottleneck = random_model("bottleneck")
    with pytest.raises(RegardError, match="no attention to its source"):
        occlusion(bottleneck, record(bottleneck, SOURCE))


def test_occlusion_ignores_training_mode(transformer):
    trace = record(transformer, SOURCE)
    expected = occlusion(transformer, trace)
    transformer.model.train()
    try:
        assert torch.equal(occlusion(transformer, trace), expected)
        assert transformer.model.training
    finally:
        transformer.model.eval()
