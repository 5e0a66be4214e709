"""Single numbers of pages open their arithmetic: shares, scores, other tokens, norms."""

import re
from math import exp

import pytest
import torch
from sklearn.decomposition import PCA

import regard
from regard.explore.offline_html import show
from regard.search import Beam, Greedy
from regard.text import train_tokenizer
from regard.trace import beam_tree, record
from tests.browser.conftest import explorer, until
from tests.browser.drawers import drawer
from tests.browser.test_derived_numbers import explain
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
    value, result, sizes = explain(page, f"softmax(z / T) of the other {len(shares) - 20} tokens")
    rest = float(shares[20:].sum())
    assert (value, result) == (pytest.approx(rest, abs=1e-9), pytest.approx(rest, abs=1e-9))
    assert sizes == pytest.approx([1, *(-shares[:20]).tolist()], abs=1e-9)
    page.evaluate("location.hash += '&o.topk=3'")
    until(page, "document.querySelector('[data-kept=\"3\"]') !== null")
    value, result, _ = explain(
        page, f"probability of drawing one of the other {len(shares) - 20} tokens"
    )
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
        until(page, f"document.querySelector('[data-drawer] [data-value]')?.dataset.value == {score}")
        value, result, _ = drawer(page)
        assert (value, result) == (pytest.approx(score), pytest.approx(score, abs=1e-6))


@pytest.mark.parametrize("live", [True, False], ids=["live", "saved"])
def test_norms_of_states_are_explained(visit, saved, ids, pipelines, live):
    trace = record(pipelines["spelling-recurrent"], SOURCE, search=Greedy())
    hash = "#/residual?i=2" + (f"&m={ids['spelling-recurrent']}&s={SOURCE}" if live else "")
    page = visit().open(hash) if live else saved(trace, hash)
    button = page.get_by_role("button", name=re.compile(r"Explain .*: enc\.0\.forward\.h$")).first
    button.click()
    value, result, sizes = drawer(page)
    state = trace["enc.0.forward.h"][2].double()
    assert result == pytest.approx(float(state.norm()), rel=1e-9)
    assert value == pytest.approx(result, rel=1e-6)
    assert sizes == pytest.approx(state.square().tolist(), abs=1e-12)


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """A bundle whose source tokenizer is a unigram."""
    from regard.bundle import Bundle, save
    from regard.models import build

    plain = random_model("rotary").bundle
    lines = ["the cat sat", "a cat ran", "the dog ran to the cat", "a bat sat there"] * 5
    source = train_tokenizer("unigram", lines, size=30)
    torch.manual_seed(0)
    model = build(plain.settings, len(source), len(plain.target)).eval()
    folder = tmp_path_factory.mktemp("unigram") / "model"
    card = {"longest": {"source": 40, "target": 9}}
    save(folder, Bundle(model, source, plain.target, plain.settings, card))
    return folder


def test_scores_of_unigram_tokens_are_explained(browser, unigram, saved):
    pipeline = regard.load(unigram, device="cpu")
    trace = record(pipeline, "the cat", "AH B")
    scores = dict(pipeline.bundle.source.library.model.get_vocab() and _table(pipeline))
    page = saved(trace, "#/tokens")
    until(page, "document.querySelectorAll('.pieces button').length > 0")
    token = page.locator(".pieces .piece").first.inner_text()
    page.locator(".pieces button").first.click()
    value, result, _ = drawer(page)
    known = {name.replace("▁", "").strip(): score for name, score in scores.items()}
    assert value == result == pytest.approx(known[token.replace("▁", "").strip("␣ ")], abs=1e-9)
    assert 0 < exp(value) < 1
    assert explorer  # the live page shows the same component
