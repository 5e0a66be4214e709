"""Greedy and beam search against HF `generate`, on a Marian model with the same random weights."""

import warnings

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from regard.config import TransformerSettings
from regard.inference import inference_model
from regard.models import Model, build
from regard.positions import Sinusoidal
from regard.search import Beam, Greedy, LengthPenalty
from regard.search import constraints as rules
from regard.text import BEGIN, END
from tests.search.known_models import ragged

VOCABULARY, WIDTH, HEADS, DEPTH, HIDDEN, LIMIT = 19, 24, 3, 1, 40, 30
PAD = 0
ALPHAS = (1.0, 0.5)
SEARCHES = [Greedy(), *(Beam(4, n_best=4, length_penalty=LengthPenalty(alpha)) for alpha in ALPHAS)]
PARTS = {
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "queries": "q_proj",
    "keys": "k_proj",
    "values": "v_proj",
    "out": "out_proj",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
}
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def theirs(name: str) -> str:
    """What HF calls a parameter of ours."""
    stack, layer, *_ = name.split(".")
    for place, norm in enumerate(NORMS[stack], 1):
        name = name.replace(f"residual{place}.norm", norm)
    for ours, other in PARTS.items():
        name = name.replace(f".{ours}.", f".{other}.")
    return name.replace(f"{stack}.{layer}", f"model.{stack}.layers.{layer}")


def sources() -> list[list[int]]:
    chance = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 9, (160,), generator=chance).tolist()
    return [
        [*torch.randint(3, VOCABULARY, (length,), generator=chance).tolist(), END]
        for length in lengths
    ]


def learn(model: Model, sources: list[list[int]]) -> None:
    """Train a little to reverse the source, so that outputs depend on it and end."""
    source, prefix = ragged(*sources), ragged(*([BEGIN, *row[-2::-1]] for row in sources))
    wanted = ragged(*([*row[-2::-1], END] for row in sources)).values
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model(source, prefix).values, wanted).backward()
        adam.step()


@pytest.fixture(scope="module", params=["relu"])
def models(request) -> tuple[MarianMTModel, Model]:
    torch.manual_seed(5)
    settings = TransformerSettings(
        width=WIDTH, heads=HEADS, encoder_layers=DEPTH, decoder_layers=DEPTH, ffn_width=HIDDEN,
        position="sinusoidal", norm_order="post", activation=request.param, tie_embeddings="all",
        dropout=0.0,
    )  # fmt: skip
    model = build(settings, VOCABULARY, VOCABULARY)
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=DEPTH, decoder_layers=DEPTH,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN, activation_function=request.param, scale_embedding=True,
        max_position_embeddings=2 * LIMIT, pad_token_id=PAD, bos_token_id=BEGIN, eos_token_id=END,
        decoder_start_token_id=BEGIN, forced_eos_token_id=None,
    )  # fmt: skip
    marian = MarianMTModel(config).eval()
    learn(model, sources())
    with torch.no_grad():
        state = marian.state_dict()
        waves = Sinusoidal(WIDTH)(torch.arange(2 * LIMIT))
        for side in ("encoder", "decoder"):
            state[f"model.{side}.embed_positions.weight"].copy_(waves)
        marian.model.shared.weight.copy_(model.target.table)
        for name, parameter in model.named_parameters():
            if name != "source.table":
                state[theirs(name)].copy_(parameter)
    assert torch.equal(marian.lm_head.weight, model.target.table)
    return marian, model.eval()


@pytest.fixture(scope="module")
def chosen_sources(models) -> list[list[int]]:
    """A hundred sources whose outputs end before the limit, where both libraries score the end."""
    model, every, suitable = inference_model(models[1]), sources(), []
    limits = torch.full((len(every),), LIMIT)
    for source, *found in zip(
        every, *(search(model, ragged(*every), limits) for search in SEARCHES), strict=True
    ):
        suitable += (
            [source]
            if all(len(one.ids) < LIMIT for some in found for one in some.hypotheses)
            else []
        )
    beams = {
        "num_beams": 4,
        "num_return_sequences": 4,
        "early_stopping": "never",
        "length_penalty": max(ALPHAS),
    }
    rows = generated(models[0], suitable, **beams).sequences.unflatten(0, (-1, 4))
    suitable = [
        source
        for source, row in zip(suitable, (rows == END).any(2).all(1).tolist(), strict=True)
        if row
    ]
    assert len(suitable) >= 100
    return suitable[:100]


def generated(marian: MarianMTModel, chosen_sources: list[list[int]], **options):
    longest = max(map(len, chosen_sources))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in chosen_sources])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in chosen_sources])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return marian.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=LIMIT + 1,
            return_dict_in_generate=True, output_scores=True, **options,
        )  # fmt: skip


def output_ids(row: torch.Tensor) -> list[int]:
    """The tokens between begin and end; every sequence has an end, so no limit was reached."""
    ids = row.tolist()
    assert ids[0] == BEGIN
    assert END in ids
    return ids[1 : ids.index(END)]


def ours(search, model: Model, chosen_sources: list[list[int]]):
    found = search(model, ragged(*chosen_sources), torch.full((len(chosen_sources),), LIMIT))
    assert all(len(one.ids) < LIMIT for some in found for one in some.hypotheses)
    return found


def test_models_have_the_same_weights(models, chosen_sources):
    marian, model = models
    source, prefix = chosen_sources[0], [BEGIN, 5, 6, 7, 3]
    with torch.no_grad():
        logits = marian(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([prefix])
        ).logits[0]
        torch.testing.assert_close(
            model(ragged(source), ragged(prefix)).values, logits, rtol=1e-4, atol=1e-4
        )


def test_greedy_tokens_match(models, chosen_sources):
    marian, model = models
    expected = [output_ids(row) for row in generated(marian, chosen_sources, num_beams=1).sequences]
    for form in (model, inference_model(model)):
        assert [some.hypotheses[0].ids for some in ours(Greedy(), form, chosen_sources)] == expected
    assert len({tuple(ids) for ids in expected}) > 30
    assert len({len(ids) for ids in expected}) > 4


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_of_four_matches_tokens_and_scores(models, chosen_sources, alpha):
    marian, model = models
    beams = {
        "num_beams": 4,
        "num_return_sequences": 4,
        "early_stopping": "never",
        "length_penalty": alpha,
    }
    expected = generated(marian, chosen_sources, **beams)
    for form in (model, inference_model(model)):
        found = ours(Beam(4, n_best=4, length_penalty=LengthPenalty(alpha)), form, chosen_sources)
        hypotheses = [one for some in found for one in some.hypotheses]
        assert [one.ids for one in hypotheses] == [output_ids(row) for row in expected.sequences]
        assert [one.score for one in hypotheses] == pytest.approx(
            expected.sequences_scores.tolist(), abs=1e-4
        )


def test_constrained_beam_matches(models, chosen_sources):
    marian, model = models
    expected = generated(
        marian, chosen_sources, num_beams=4, num_return_sequences=4, early_stopping="never",
        length_penalty=1.0, no_repeat_ngram_size=2, min_new_tokens=3, bad_words_ids=[[5], [6, 7]],
    )  # fmt: skip
    constraints = (rules.no_repeat_ngram(2), rules.min_length(3), rules.ban([[5], [6, 7]]))
    found = ours(
        Beam(4, n_best=4, length_penalty=LengthPenalty(1.0), constraints=constraints),
        model,
        chosen_sources,
    )
    hypotheses = [one for some in found for one in some.hypotheses]
    assert [one.ids for one in hypotheses] == [output_ids(row) for row in expected.sequences]
    assert [one.score for one in hypotheses] == pytest.approx(
        expected.sequences_scores.tolist(), abs=1e-4
    )
