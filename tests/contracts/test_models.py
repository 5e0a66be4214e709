"""Contract of models: steps equal the full pass, training resumes exactly, bundles keep weights.

Every test runs for every case of the contract matrix (model_cases.py).
"""

import pytest
import torch

from regard import bundle
from regard.config import TrainSettings, TransformerSettings
from regard.errors import RegardError, ShapeError
from regard.models import Model, build
from regard.ragged import Ragged
from regard.text import END, Batches, TokenizedPairs, tokenize_corpus, train_tokenizer
from regard.training import checkpoint
from regard.training.distributed import World
from regard.training.optimizers import optimizer_states
from regard.training.trainer import Trainer
from tests.contracts.model_cases import (
    CASES,
    SOURCE,
    SOURCE_TEXT,
    TARGET,
    TARGET_TEXT,
    decoder_input,
    encoder_input,
    make,
    make_pipeline,
    random_ids,
    source_size,
)

every_case = pytest.mark.parametrize("name", CASES)
LENGTHS = [5, 1, 7]


def assert_close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def sources() -> Ragged:
    return encoder_input(random_ids(LENGTHS, SOURCE))


def prefixes(lengths: list[int]) -> Ragged:
    return decoder_input(random_ids(lengths, TARGET, seed=2))


@every_case
@torch.no_grad()
def test_steps_equal_the_full_pass(name: str):
    model, prefix = make(name), prefixes([4, 4, 4])
    full = torch.stack(model(sources(), prefix).unbind())
    state = model.start(model.encode(sources()))
    for t, tokens in enumerate(torch.stack(prefix.unbind(), 1)):
        logits, state = model.step(tokens, state)
        assert_close(logits, full[:, t])


@every_case
@torch.no_grad()
def test_logits_do_not_depend_on_the_batch(name: str):
    model, prefix = make(name), prefixes([2, 5, 1])
    together = model(sources(), prefix)
    for row, source, target in zip(together, sources(), prefix, strict=True):
        alone = model(Ragged.of([source]), Ragged.of([target]))
        assert_close(row, alone.values)


@every_case
@torch.no_grad()
def test_mixed_precision_gives_about_the_same_logits(name: str):
    model, prefix = make(name), prefixes([2, 5, 1])
    exact = model(sources(), prefix).values
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(sources(), prefix).values
    assert (rounded.float() - exact).abs().max() < 0.1 * exact.abs().max()


@every_case
@torch.no_grad()
def test_rows_may_be_reordered_repeated_and_dropped(name: str):
    model = make(name)
    state = model.start(model.encode(sources()))
    rows, prefix = torch.arange(3), torch.empty(3, 0, dtype=torch.long)
    draw = torch.Generator().manual_seed(4)
    for chosen in ([0, 1, 2], [2, 0, 2, 1], [3, 0], [1, 1, 0]):
        at = torch.tensor(chosen)
        state, rows = state.select(at), rows[at]
        tokens = torch.randint(3, TARGET, (len(chosen),), generator=draw)
        logits, state = model.step(tokens, state)
        prefix = torch.cat([prefix[at], tokens[:, None]], 1)
    repeated = Ragged.of([sources().unbind()[row] for row in rows])
    full = model(repeated, Ragged.of(list(prefix)))
    assert_close(logits, torch.stack([row[-1] for row in full]))


@every_case
@torch.no_grad()
def test_later_tokens_do_not_change_earlier_logits(name: str):
    model, source = make(name), encoder_input(random_ids([4], SOURCE))
    prefix = prefixes([5])
    changed = prefix.like(prefix.values.clone())
    changed.values[4:] = (changed.values[4:] + 1) % TARGET
    ours, theirs = model(source, prefix).values, model(source, changed).values
    rounding = 1e-5 if "entmax" in name else 0  # a search whose steps depend on all rows
    torch.testing.assert_close(ours[:4], theirs[:4], rtol=0, atol=rounding)
    assert not torch.equal(ours[4:], theirs[4:])


def has_score_gradients(model: Model) -> bool:
    """Whether its weights change with small changes of the scores."""
    return model.settings.normaliser not in ("uniform", "boxcar")


@every_case
def test_one_training_step_lowers_the_loss(name: str):
    model = make(name, dropout=0.0).train()
    labels = torch.tensor([4, 5, 6, END] * 3)
    losses = []
    for _ in range(2):
        logits = model(sources(), decoder_input([[4, 5, 6]] * 3)).values
        loss = torch.nn.functional.cross_entropy(logits, labels)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for label, parameter in model.named_parameters():
                if parameter.grad is None:
                    assert not has_score_gradients(model), label
                else:
                    assert parameter.grad.isfinite().all(), label
                    parameter -= 0.02 * parameter.grad
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> TokenizedPairs:
    """Nine pairs of the two alphabets, each source with its reversal in capitals."""
    texts = ["abc", "bcde", "cd", "hgf", "ea", "fgha", "b", "dhg", "gab"]
    pairs = [(text, text[::-1].upper()) for text in texts]
    tokenizers = [train_tokenizer("characters", [text]) for text in (SOURCE_TEXT, TARGET_TEXT)]
    return tokenize_corpus(pairs, *tokenizers, tmp_path_factory.mktemp("ids") / "ids")


def make_trainer(name: str, pairs: TokenizedPairs, seed: int) -> Trainer:
    """A trainer of two steps with dropout."""
    torch.manual_seed(seed)
    chosen = CASES[name].model_copy(update={"dropout": 0.2})
    model = build(chosen, source_size(chosen), TARGET)
    settings = TrainSettings(weight_average="ema", average_count=200)
    batches = Batches(pairs, batch_tokens=40, seed=1)
    return Trainer(model, batches, settings, 2, World(1, 0, torch.device("cpu")), rate=1e-2)


def tensors_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The weights, the optimizer states and the weight average of a trainer."""
    state = {
        "model": trainer.model.state_dict(),
        "optimizers": optimizer_states(trainer.optimizers),
        "average": trainer.average.state(),
    }
    return checkpoint.flatten(state).tensors


@every_case
def test_an_interrupted_run_resumes_bit_identically(name: str, pairs, tmp_path):
    whole, first, second = (make_trainer(name, pairs, seed) for seed in (1, 1, 2))
    losses = [whole.advance()[0] for _ in range(2)]
    first.advance()
    first.save(tmp_path, {})
    second.restore(checkpoint.read(tmp_path))
    assert torch.equal(second.advance()[0], losses[1])
    expected, resumed = tensors_of(whole), tensors_of(second)
    assert list(resumed) == list(expected)
    assert [key for key in expected if not torch.equal(resumed[key], expected[key])] == []
    assert (second.step, second.epoch, second.epoch_step) == (2, 0, 2)


@every_case
@torch.no_grad()
def test_a_loaded_bundle_gives_the_same_logits(name: str, tmp_path):
    pipeline, prefix = make_pipeline(name), prefixes([2, 2, 2])
    bundle.save(tmp_path / "bundle", pipeline.bundle)
    loaded = bundle.load(tmp_path / "bundle").model.eval()
    assert loaded.settings == pipeline.model.settings
    ours, theirs = (model(sources(), prefix).values for model in (pipeline.model, loaded))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["transformer-untied", "recurrent-none"])
def test_each_source_needs_a_prefix(name: str):
    model = make(name)
    one, two = (encoder_input([[5]] * count) for count in (1, 2))
    for source, prefix in ((two, one), (one, two)):
        with pytest.raises(ShapeError, match="each source needs one prefix"):
            model(source, prefix)


@torch.no_grad()
def test_settings_change_what_the_model_computes():
    prefix = prefixes([3, 3, 3])
    plain = make("transformer-score-scaled-dot")
    for changes in ({"window": 2}, {"normaliser": "sparsemax"}, {"score": "cosine"}):
        other = make("transformer-score-scaled-dot", **changes)
        other.load_state_dict(plain.state_dict(), strict=False)
        assert not torch.allclose(plain(sources(), prefix).values, other(sources(), prefix).values)


def test_an_unknown_part_names_the_way_to_import_it():
    with pytest.raises(RegardError, match=r"unknown normaliser 'mine'.*--import FILE"):
        build(TransformerSettings(normaliser="mine"), 5, 5)
    with pytest.raises(RegardError, match="'entmax' has no option 'alhpa'; did you mean 'alpha'"):
        build(TransformerSettings(normaliser={"kind": "entmax", "alhpa": 1.5}), 5, 5)
