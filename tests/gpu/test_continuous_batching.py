"""Continuous batching on a GPU against searches on the host and on the CPU (`pytest tests/gpu`)."""

import gc
import weakref

import pytest
import torch

import regard
from regard.config import TransformerSettings
from regard.inference import continuous_batching, inference_model, search_all
from regard.inference.batch_scheduler import DEFAULT_SLOTS, BatchScheduler, Request
from regard.models import build
from regard.search import Beam, Greedy, LengthPenalty, Sampling
from regard.search.constraints import min_length, no_repeat_ngram
from regard.search.search_batches import batch_invariant
from regard.text import END
from regard.training import cmudict
from tests.search.known_models import ragged

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
SHAPES = [
    {},
    {"position": "sinusoidal", "norm_order": "post", "activation": "relu"},
    {"position": "learned", "norm": "rms", "activation": "gelu", "kv_heads": 1},
    {"position": "alibi", "kv_heads": 2},
    {"position": "distance", "norm_order": "post", "norm": "rms"},
    {"position": "t5", "tie_embeddings": "target"},
    {"activation": "gelu-tanh", "norm_eps": 0.1, "embedding_norm": True},
    {"activation": "silu", "embedding_scale": 0.5, "output_bias": True},
    {  # as BART
        "position": "learned",
        "norm_order": "post",
        "activation": "gelu",
        "embedding_norm": True,
        "embedding_scale": 1.0,
        "output_bias": True,
    },
    {  # as T5 1.1
        "position": {"kind": "t5", "buckets": 8, "max_distance": 12},
        "norm": "rms",
        "activation": "geglu",
        "biases": False,
        "dim": 24,
        "embedding_scale": 1.0,
    },
]
SEARCHES = {
    "greedy": Greedy(),
    "greedy of 3 or more": Greedy((min_length(3),)),
    "beam 4": Beam(4),
    "beam 5, 3 best": Beam(5, n_best=3, length_penalty=LengthPenalty(1.0)),
}


def build_model(**shape):
    torch.manual_seed(3)
    shape = {"tie_embeddings": "none", **shape}
    model = build(
        TransformerSettings(
            width=64,
            heads=4,
            encoder_layers=1,
            decoder_layers=2,
            ffn_width=96,
            dropout=0.0,
            **shape,
        ),
        30,
        300,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def sources_of(count, max_length=40):
    chance = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, max_length, (count,), generator=chance).tolist()
    return [torch.randint(3, 30, (length,), generator=chance).tolist() for length in lengths]


def host_search(search, model, sources, device):
    """One search of all sources on the host."""
    source = ragged(*([*ids, END] for ids in sources)).to(device)
    with torch.inference_mode():
        return batch_invariant(
            search, model, source, torch.minimum(2 * source.lengths.cpu() + 20, torch.tensor(30))
        )


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert [a.ids for a in one.hypotheses] == [a.ids for a in other.hypotheses]
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.logps == pytest.approx(b.logps, abs=1e-4)
            assert a.score == pytest.approx(b.score, abs=1e-4, rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_scheduler_finds_what_the_host_finds(shape, search):
    model, sources = build_model(**shape), sources_of(70)
    ours = search_all(search, inference_model(model.cuda()), sources, max_length=30, device="cuda")
    assert_same(ours, host_search(search, inference_model(model), sources, "cuda"))
    assert_same(ours, host_search(search, inference_model(model.cpu()), sources, "cpu"))
    assert len({tuple(some.hypotheses[0].ids) for some in ours}) > 4


@pytest.mark.parametrize("search", [Greedy(), Beam(4, n_best=2)], ids=["greedy", "beam"])
def test_no_output_depends_on_its_neighbours(search):
    """1, 8, 64 and 512 slots."""
    model, sources = inference_model(build_model().cuda()), sources_of(300)
    every = search_all(search, model, sources, max_length=30, device="cuda")
    for count in (1, 7, 64):
        assert_same(
            search_all(search, model, sources[:count], max_length=30, device="cuda"), every[:count]
        )


def test_every_slot_gives_the_same_bits():
    model, ids = inference_model(build_model().cuda()), [*sources_of(1)[0], END]
    with torch.inference_mode():
        scheduler = BatchScheduler(Beam(4), model, DEFAULT_SLOTS, capacity=64, memory=64)
        alike = scheduler.run([Request(i, ids, 0, 40) for i in range(DEFAULT_SLOTS)])
        alone = scheduler.run([Request(0, ids, 0, 40)])
    assert all(some == alone[0] for some in alike.values())


def test_new_weights_are_used():
    """As in training: a new inference model for each evaluation."""
    model, sources = build_model().cuda(), sources_of(9)
    first = search_all(Greedy(), inference_model(model), sources, max_length=30, device="cuda")
    with torch.no_grad():
        model.output.table.neg_()
    second = search_all(Greedy(), inference_model(model), sources, max_length=30, device="cuda")
    assert_same(second, host_search(Greedy(), inference_model(model), sources, "cuda"))
    assert first != second


def test_unsupported_searches_run_on_the_host():
    model = inference_model(build_model().cuda())
    assert continuous_batching.cannot(Greedy(), model, "cuda") is None
    assert continuous_batching.cannot(Beam(16, constraints=(min_length(2),)), model, "cuda") is None
    assert continuous_batching.cannot(Greedy(), model, "cpu") is not None
    assert continuous_batching.cannot(Sampling(), model, "cuda") is not None
    assert (
        continuous_batching.cannot(Beam(4, constraints=(no_repeat_ngram(2),)), model, "cuda")
        is not None
    )
    shaw = inference_model(build_model(position="shaw").cuda())
    assert continuous_batching.cannot(Greedy(), shaw, "cuda") is not None
    long = [*sources_of(3), [3] * 2_100]
    found = search_all(Greedy(), model, long, max_length=30, device="cuda")
    assert_same(found, host_search(Greedy(), model, long, "cuda"))


@pytest.mark.parametrize("beam", [1, 4])
def test_the_included_model_gives_the_outputs_of_a_cpu(beam):
    words = [word for word, _ in cmudict.dictionary() if cmudict.part(word) == "test"][:300]
    here, there = (regard.load("spelling", device=device) for device in ("cuda", "cpu"))
    ours, theirs = ([a.text for a in t.many(words, t.search(beam=beam))] for t in (here, there))
    assert ours == theirs


def test_a_search_reuses_its_captured_scheduler():
    model = inference_model(build_model().cuda())
    for search, count in ((Greedy(), 3), (Beam(4), 3), (Beam(4), 20)):
        search_all(search, model, sources_of(count), max_length=30, device="cuda")
    first = dict(continuous_batching._SCHEDULERS[model])
    assert len(first) >= 3  # one for each search and number of slots
    for search, count in ((Greedy(), 3), (Beam(4), 3), (Beam(4), 20)):
        search_all(search, model, sources_of(count), max_length=30, device="cuda")
    assert {
        key: continuous_batching._SCHEDULERS[model][key] is scheduler
        for key, scheduler in first.items()
    } == dict.fromkeys(first, True)


def test_a_scheduler_is_freed_with_its_model():
    """Otherwise every evaluation in training would leak one."""
    model = inference_model(build_model().cuda())
    search_all(Greedy(), model, sources_of(3), max_length=30, device="cuda")
    (scheduler,) = continuous_batching._SCHEDULERS[model].values()
    gone = weakref.ref(scheduler)
    del model, scheduler
    gc.collect()
    assert gone() is None
