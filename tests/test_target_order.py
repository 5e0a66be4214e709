"""`text.target_order` = reversed: the model generates targets from the end, and texts keep their
order."""

from dataclasses import replace

import pytest
import torch

import regard
from regard import bundle
from regard.bundle import Bundle
from regard.errors import EngineError, RegardError
from regard.pipeline import Pipeline
from regard.text.template import DEFAULT_TEMPLATE, Template
from tests.test_pipeline import random_pipeline

WORDS = ["zebra", "banana", "ab", "rabbit"]


def mirrored(pipeline: Pipeline, **options) -> Pipeline:
    """The same weights, which now generate targets from the end."""
    old = pipeline.bundle
    parts = old.model, old.source, old.target, old.settings, old.card
    return Pipeline(Bundle(*parts, template=replace(old.template, reversed=True)), **options)


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def both(request) -> tuple[Pipeline, Pipeline]:
    forward = random_pipeline(request.param)
    return forward, mirrored(forward)


def flipped(values: list[float]) -> list[float]:
    """A row of log-probabilities in the opposite order of tokens; that of the end stays last."""
    return [*reversed(values[:-1]), values[-1]]


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"min_length": 2}], ids=str)
def test_outputs_have_the_order_of_the_text(both, options):
    forward, back = both
    for one, other in zip(forward.many(WORDS, **options), back.many(WORDS, **options), strict=True):
        assert other.ids == one.ids[::-1]
        assert other.text.split() == one.text.split()[::-1]
        assert other.logps == pytest.approx(flipped(one.logps), abs=1e-6)
        assert other.score == pytest.approx(one.score, abs=1e-6)


def test_scores_have_the_order_of_the_text(both):
    forward, back = both
    expected = flipped(forward.score("zebra", "N AE Z").logps)
    assert back.score("zebra", "Z AE N").logps == pytest.approx(expected, abs=1e-6)


def test_alignments_have_the_order_of_the_text(both):
    forward, back = both
    rows = forward.with_attention(forward.score("zebra", "N AE Z"), alignment=True).alignment
    found = back.with_attention(back.score("zebra", "Z AE N"), alignment=True).alignment
    torch.testing.assert_close(found, torch.cat([rows[:-1].flip(0), rows[-1:]]))


def test_streams_have_the_whole_output_only(both):
    _, back = both
    assert list(back.stream("zebra")) == [back("zebra").text]


def test_what_needs_the_beginning_is_refused(both):
    _, back = both
    for options in ({"prefix": "Z"}, {"ban": ["Z"]}, {"require": ["Z"]}):
        with pytest.raises(EngineError, match="need a model that generates targets from the begin"):
            back("zebra", **options)
    for use in (lambda: back("zebra", weights=True), lambda: regard.record(back, "zebra"),
                lambda: back.alternatives("zebra", 0)):  # fmt: skip
        with pytest.raises(RegardError, match=r"trained with text\.target_order = reversed"):
            use()


def test_a_bundle_keeps_the_order(tmp_path):
    back = mirrored(random_pipeline())
    bundle.save(tmp_path / "model", back.bundle)
    loaded = regard.load(tmp_path / "model")
    assert loaded.bundle.template.reversed
    assert loaded.engine == "torch"
    assert "generates targets from the beginning" in loaded.refused_engines["native"]
    assert [str(one) for one in loaded.many(WORDS)] == [str(one) for one in back.many(WORDS)]
    for engine in ("native", "ctranslate2"):
        with pytest.raises(EngineError, match="from the beginning, and this model from the end"):
            regard.load(tmp_path / "model", engine=engine)


def test_loading_both_orders_makes_an_ensemble_of_both(tmp_path):
    forward = random_pipeline()
    back = mirrored(forward)
    for name, pipeline in (("forward", forward), ("back", back)):
        bundle.save(tmp_path / name, pipeline.bundle)
    joined = regard.load([tmp_path / "back", tmp_path / "forward"])  # in any order
    assert not joined.bundle.template.reversed
    assert len(joined.model.members) == len(joined.model.reversed_members) == 1
    each = [one.score("zebra", "Z AE N").logps for one in (forward, back)]
    expected = [(a + b) / 2 for a, b in zip(*each, strict=True)]
    assert joined.score("zebra", "Z AE N").logps == pytest.approx(expected, abs=1e-5)
    bundle.save(tmp_path / "joined", joined.bundle)
    again = regard.load(tmp_path / "joined")
    assert [str(one) for one in again.many(WORDS)] == [str(one) for one in joined.many(WORDS)]
    more = regard.load([tmp_path / "joined", tmp_path / "back"])
    assert [len(more.model.members), len(more.model.reversed_members)] == [1, 2]
    same = regard.load([tmp_path / "back", tmp_path / "back"])
    assert same.bundle.template.reversed
    assert str(same("zebra")) == str(back("zebra"))


def test_the_tokens_of_a_template_follow_the_order():
    template = Template(reversed=True)
    assert template.decoder_input([5, 6, 7]) == [1, 7, 6, 5]
    assert template.labels([5, 6, 7]) == [7, 6, 5, 2]
    assert Template.from_json(template.to_json()) == template
    stored = DEFAULT_TEMPLATE.to_json()
    del stored["reversed"]  # as earlier versions wrote it
    assert Template.from_json(stored) == DEFAULT_TEMPLATE
    with pytest.raises(RegardError, match="reversed must be true or false; got 1"):
        Template.from_json({"reversed": 1})
