"""Single numbers of pages open their arithmetic: shares, scores, other tokens, norms."""

import json
import re

import pytest
import torch
from sklearn.decomposition import PCA

import regard
from regard.explore.offline_html import show
from regard.search import Beam, Greedy
from regard.text import Tokenizer
from regard.trace import beam_tree, record
from tests.browser.conftest import until
from tests.browser.drawers import drawer
from tests.browser.test_derived_numbers import explain
from tests.text.foreign_tokenizers import sentencepiece
from tests.trace.random_models import random_model

SOURCE = "attention"


@pytest.fixture(scope="module")
def trace(pipelines):
    return record(pipelines["spelling"], SOURCE, search=Greedy())


@pytest.fixture
def saved(offline_page, tmp_path):
    """Opens a page of a trace that was saved to a file."""

    def start(trace, hash):
        offline_page.goto(f"{show(trace).save(tmp_path / 'saved.html').as_uri()}{hash}")
        until(offline_page, "document.querySelector('.page h1') !== null")
        return offline_page

    return start


@pytest.mark.parametrize("live", [True, False], ids=["live", "saved"])
def test_shares_of_the_variance_are_explained(visit, saved, ids, trace, live):
    hash = "#/embedding" + (f"?m={ids['spelling']}&s={SOURCE}" if live else "")
    page = visit().open(hash) if live else saved(trace, hash)
    truth = PCA().fit(trace.pipeline.model.source.table.detach().double().numpy())
    first, second = truth.explained_variance_ratio_[:2].tolist()
    value, result, sizes = explain(page, "share of the variance, component 2")
    assert (value, result) == (pytest.approx(second, rel=1e-9), pytest.approx(second, rel=1e-9))
    rows = len(trace.pipeline.model.source.table)
    assert len(sizes) == rows
    assert sum(sizes) == pytest.approx(truth.explained_variance_[1] * (rows - 1), rel=1e-9)
    page.locator("[data-drawer] dt button").click()
    until(page, "document.querySelector('[data-drawer]').innerText.includes('total variance')")
    assert drawer(page)[1] == pytest.approx(truth.explained_variance_.sum() * (rows - 1), rel=1e-9)
    _, result, sizes = explain(page, "share of the variance, both components")
    assert sizes == pytest.approx([first, second], rel=1e-9)
    assert result == pytest.approx(first + second, rel=1e-9)


@pytest.mark.parametrize("live", [True, False], ids=["live", "saved"])
def test_the_other_tokens_are_explained(visit, saved, ids, trace, live):
    hash = "#/output?r=2&o.temp=2" + (f"&m={ids['spelling']}&s={SOURCE}" if live else "")
    page = visit().open(hash) if live else saved(trace, hash)
    until(page, "document.querySelector('[data-exact=true]') !== null")
    shares = (trace["out.logits"][2].double() / 2).softmax(0).sort(descending=True).values
    others = f"the other {len(shares) - 20} tokens"
    page.get_by_role("button", name=f"softmax(z / T) of {others}").click()
    value, result, sizes = drawer(page)
    rest = float(shares[20:].sum())
    assert (value, result) == (pytest.approx(rest, abs=1e-9), pytest.approx(rest, abs=1e-9))
    assert sizes == pytest.approx([1, *(-shares[:20]).tolist()], abs=1e-9)
    page.evaluate("location.hash += '&o.topk=3'")
    until(page, "document.querySelector('[data-kept=\"3\"]') !== null")
    value, result, _ = explain(page, f"probability of drawing one of {others}")
    assert (value, result) == (0, 0)


@pytest.mark.parametrize("live", [True, False], ids=["live", "saved"])
def test_finished_hypotheses_are_explained(visit, saved, ids, pipelines, live):
    pipeline = pipelines["spelling"]
    trace = record(pipeline, SOURCE, search=Beam(4))
    hash = "#/decode" + (f"?m={ids['spelling']}&s={SOURCE}&d=4" if live else "")
    page = visit().open(hash) if live else saved(trace, hash)
    until(page, "document.querySelectorAll('.answers button').length > 2")
    tree = beam_tree(pipeline, SOURCE, search=Beam(4))
    scores = sorted((node.score for node in tree.nodes if node.status == "finished"), reverse=True)
    for at, score in enumerate(scores[:2]):
        page.locator(".answers li").nth(at).get_by_role("button").nth(1).click()
        until(
            page, f"document.querySelector('[data-drawer] [data-value]')?.dataset.value == {score}"
        )
        value, result, _ = drawer(page)
        assert (value, result) == (pytest.approx(score), pytest.approx(score, abs=1e-6))


@pytest.mark.parametrize("live", [True, False], ids=["live", "saved"])
def test_norms_of_states_are_explained(visit, saved, ids, pipelines, live):
    trace = record(pipelines["spelling-recurrent"], SOURCE, search=Greedy())
    hash = "#/residual?j=2" + (f"&m={ids['spelling-recurrent']}&s={SOURCE}" if live else "")
    page = visit().open(hash) if live else saved(trace, hash)
    page.get_by_role("button", name=re.compile(r"Explain .*: enc\.0\.h$")).first.click()
    value, result, sizes = drawer(page)
    at = int(re.search(r"\[(\d+)\]", page.locator("[data-drawer] .name").inner_text())[1])
    state = trace["enc.0.h"][at].double()
    assert result == pytest.approx(float(state.norm()), rel=1e-9)
    assert value == pytest.approx(result, rel=1e-6)
    assert sizes == pytest.approx(state.square().tolist(), abs=1e-12)


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """A bundle whose source tokenizer is a unigram."""
    from regard.bundle import Bundle, save
    from regard.models import build

    plain = random_model("rotary").bundle
    source = Tokenizer(sentencepiece())
    torch.manual_seed(0)
    model = build(plain.settings, len(source), len(plain.target)).eval()
    folder = tmp_path_factory.mktemp("unigram") / "model"
    card = {"longest": {"source": 40, "target": 9}}
    save(folder, Bundle(model, source, plain.target, plain.settings, card))
    return folder


def test_scores_of_unigram_tokens_are_explained(unigram, saved):
    pipeline = regard.load(unigram, device="cpu")
    library = pipeline.bundle.source.library
    table = json.loads(library.to_str())["model"]["vocab"]
    text = "the cat 🙂"
    ids = library.encode(text, add_special_tokens=False).ids
    unknown = min(score for _, score in table) - 10
    expected = [unknown if table[id][0] == "<unk>" else table[id][1] for id in ids]
    assert unknown in expected
    page = saved(record(pipeline, text, "AH B"), "#/tokens")
    until(page, f"document.querySelectorAll('.pieces button').length === {len(ids)}")
    for at, score in enumerate(expected):
        page.locator(".pieces button").nth(at).click()
        shown = "document.querySelector('[data-drawer] [data-value]')?.dataset.value"
        until(page, f"Math.abs({shown} - {score}) < 1e-9")
        assert drawer(page)[1] == pytest.approx(score, abs=1e-9)
        least = "least log-probability" in page.locator("[data-drawer]").inner_text()
        assert least == (score == unknown)
