"""Decoding options of a pipeline: constraints, defaults and errors."""

import pytest
import torch

import regard
from regard import bundle
from regard.decoding_options import DecodingOptions
from regard.errors import RegardError
from regard.pipeline import Pipeline
from regard.search import Beam, Greedy, Sampling
from regard.text import END
from tests.contracts.model_cases import make_pipeline
from tests.native_build import require_native_engine
from tests.test_pipeline import SETTINGS, WORDS, random_pipeline


@pytest.fixture(scope="module", params=SETTINGS)
def t(request) -> Pipeline:
    return random_pipeline(request.param)


def test_constraints_hold(t):
    often = sorted(
        {token for a in t.best("zebra", n=5) for token in a.tokens}
        & {"AH", "B", "AE", "N", "Z", "IY"}
    )[0]
    for answer in t.best("zebra", n=3, ban=[often, "Z IY"], min_length=2, max_length=4):
        assert often not in answer.tokens
        assert "Z IY" not in answer.text
        assert 2 <= len(answer.ids) <= 4
    assert t("zebra", t.search(prefix="N N Z")).text.startswith("N N Z")
    assert t("zebra", prefix="N N Z").text.startswith("N N Z")
    assert {"AE", "B"} <= set(t("zebra", require=["AE", "B"]).tokens)
    assert not {"AE", "B"} & set(t.sample("zebra", 1, ban=["AE", "B"], temperature=9.0)[0].tokens)
    assert "".join(t.stream("zebra", prefix="N N Z")).startswith("N N Z")
    once = t("zebra", t.search(no_repeat_ngram=1, min_length=4)).tokens
    assert len(set(once)) == len(once) >= 4


def test_single_word_stands_for_a_list(t):
    for rule in ("ban", "require"):
        alone, listed = (t.best("zebra", **{rule: words}) for words in ("IY", ["IY"]))
        assert [answer.ids for answer in alone] == [answer.ids for answer in listed]


def test_search_follows_the_options(t):
    assert isinstance(t.search(beam=1), Greedy)
    assert isinstance(t.search(beam=1, require=["AH"]), Beam)
    assert t.search().length_penalty.alpha == 0
    assert random_pipeline(card={"task": "text"}).search().length_penalty.alpha == 1
    assert [a.ids for a in t.many(WORDS, Sampling(seed=7))] == [
        t.sample(word, seed=7)[0].ids for word in WORDS
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, r"^beam must be an integer of at least 1; got 0$"),
        (
            {"require": ["QUX"]},
            r"^'QUX' contains symbols that the target vocabulary lacks; use known symbols$",
        ),
        ({"ban": [" "]}, r"^' ' contains symbols that the target vocabulary lacks"),
        ({"prefix": "QUX"}, r"^'QUX' contains symbols that the target vocabulary lacks"),
        ({"n_best": 0}, r"^n_best must be an integer of at least 1; got 0$"),
        ({"beam": 2, "n_best": 3}, r"^a beam of 2 cannot return 3 outputs; increase beam or lower"),
        ({"top_k": 3}, r"^top_k applies to sampling only; leave it out, or set sample$"),
        ({"beam": 4, "sample": True}, r"^beam applies to search only; leave it out, or leave out"),
        ({"beams": 4}, r"^unknown decoding option 'beams'; did you mean 'beam'\?$"),
    ],
)
def test_wrong_options_are_refused(t, options, message):
    with pytest.raises(RegardError, match=message):
        t.search(**options)


@pytest.mark.parametrize("beam", [1, 4])
def test_unsatisfiable_constraints_are_an_error(t, beam):
    with pytest.raises(RegardError, match=r"no output .*relax one"):
        t("zebra", t.search(beam=beam, min_length=5, max_length=3))


def test_keywords_object_and_search_give_the_same_answers(t):
    options = DecodingOptions.of(beam=2, min_length=3)
    keywords = {"beam": 2, "min_length": 3}
    right = t("zebra", t.search(options)).ids
    assert t("zebra", **keywords).ids == right
    assert t("zebra", t.search(**keywords)).ids == right
    assert [answer.ids for answer in t.many(["zebra"], **keywords)] == [right]
    assert len(right) >= 3
    assert t.search().size == 4
    assert t.search(n_best=6).size == 6  # the default beam grows with the number of outputs


def test_search_and_options_exclude_each_other(t):
    with pytest.raises(RegardError, match=r"^give a search or decoding options, not both; got "):
        t("zebra", t.search(), beam=2)
    with pytest.raises(RegardError, match=r"^give decoding options or keywords, not both; got "):
        t.search(DecodingOptions(), beam=2)
    with pytest.raises(RegardError, match=r"^stream runs greedy or beam search; leave out sample$"):
        next(t.stream("zebra", sample=True))


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_outputs_end_with_the_learned_positions(engine, tmp_path):
    if engine == "native":
        require_native_engine()
    pipeline = make_pipeline("transformer-like-bart")  # 20 positions, the first for BEGIN
    with torch.no_grad():
        pipeline.model.output.bias[END] = -100.0
    bundle.save(tmp_path / "b", pipeline.bundle)
    loaded = regard.load(tmp_path / "b", engine=engine)
    assert loaded.max_length == 19
    assert [len(answer.ids) for answer in loaded.many(["bead", "a"], beam=2)] == [19, 19]
    longest = {"longest": {"source": 4, "target": 3}}
    assert Pipeline(pipeline.bundle.with_card(longest)).max_length == 16
