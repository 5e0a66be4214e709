"""Numbers that are computed from tensors open the drawer, with the right terms and result."""

import math
import re
from urllib.parse import quote

import pytest
import torch

import regard
from regard.search import Beam, Greedy
from regard.trace import alignment_matrix, beam_tree, occlusion, record
from regard.trace.attention_analysis import distance, entropy
from tests.browser.conftest import download_export, until, wait_for

SOURCE = "attention"
VALUE = "document.querySelector('[data-drawer] [data-value]') !== null"


@pytest.fixture(scope="module")
def trace(pipelines):
    return record(pipelines["spelling"], SOURCE, search=Greedy())


def drawer(page) -> tuple[float, float, list[float]]:
    """The shown value, the result recomputed from its terms, and the size of each term."""
    until(page, VALUE)
    read = """() => {
      const find = name => document.querySelector(`[data-drawer] [data-${name}]`);
      const bars = [...document.querySelectorAll('[data-drawer] [data-size]')];
      return [find('value').dataset.value, find('result').dataset.result,
              bars.map(bar => bar.dataset.size)];
    }"""
    if page.locator("[data-all-lines]").count():
        page.locator("[data-all-lines]").click()
    value, result, sizes = page.evaluate(read)
    return float(value), float(result), [float(size) for size in sizes]


def explain(page, what: str):
    """Explain a number that is not explained already."""
    before = page.locator("[data-drawer]").all_inner_texts()
    page.get_by_role("button", name=re.compile(f"Explain {re.escape(what)}$")).first.click()
    wait_for(page, lambda: page.locator("[data-drawer]").all_inner_texts() != before, what)
    return drawer(page)


def test_head_statistics_are_explained(visit, ids, trace):
    page = visit().open(f"#/heads?m={ids['spelling']}&s={SOURCE}")
    weights = trace["enc.0.self.weights"].double()
    value, result, sizes = explain(page, "Entropy, layer 0, head 0")
    expected = float(entropy(weights)[0])
    assert (value, result) == (pytest.approx(expected, abs=1e-9), pytest.approx(expected, abs=1e-9))
    assert len(sizes) == len(SOURCE) + 1
    page.locator("[data-drawer] tbody").get_by_role("button").nth(2).click()  # one row
    until(page, "document.querySelector('[data-drawer]').innerText.includes('query 2')")
    row = weights[0, 2]
    terms = (-row * row.log2()).tolist()
    value, result, sizes = drawer(page)
    assert result == pytest.approx(sum(terms), abs=1e-9)
    assert sizes == pytest.approx(terms, abs=1e-9)
    page.locator("[data-drawer] tbody").get_by_role("button").first.click()  # one weight
    until(page, "document.querySelector('[data-drawer]').innerText.includes('softmax')")
    assert drawer(page)[0] == pytest.approx(float(trace["enc.0.self.weights"][0, 2, 0]), rel=1e-6)
    _, result, _ = explain(page, "Distance, layer 0, head 0")
    assert result == pytest.approx(float(distance(weights)[0]), abs=1e-9)


def test_norms_and_cosines_are_explained(visit, ids, trace):
    page = visit().open(
        f"#/residual?m={ids['spelling']}&s={SOURCE}&a=enc.0.self&i=2&o.step=enc.0.resid2"
    )
    before, added = (trace[name][2].double() for name in ("enc.0.resid1", "enc.0.ffn.out"))
    value, result, sizes = explain(page, "contribution, norm")
    assert result == pytest.approx(float(added.norm()), rel=1e-9)
    assert value == pytest.approx(result, rel=1e-5)
    assert sizes == pytest.approx((added**2).tolist(), rel=1e-9)
    value, result, sizes = explain(page, "cosine with the residual")
    cosine = float(before @ added / (before.norm() * added.norm()))
    assert (value, result) == (pytest.approx(cosine, abs=1e-5), pytest.approx(cosine, abs=1e-9))
    page.get_by_label("Sort by size").check()
    _, _, sorted_sizes = drawer(page)
    assert sorted_sizes == sorted(sizes, key=abs, reverse=True)
    bars = page.locator("[data-drawer] [data-size]")
    shares = bars.evaluate_all("all => all.map(bar => parseFloat(bar.style.width))")
    largest = abs(sorted_sizes[0])
    assert shares == pytest.approx([100 * abs(one) / largest for one in sorted_sizes], abs=0.1)


def test_mean_weights_and_differences_are_explained(visit, ids, trace, pipelines):
    page = visit().open(f"#/alignment?m={ids['spelling']}&s={SOURCE}&o.shape=matrix")
    cell = page.locator("[data-heatmap='alignment.matrix'] [role=gridcell]")
    cell.focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    value, result, sizes = drawer(page)
    heads = [
        float(trace[f"dec.{layer}.cross.weights"][head, 1, 1])
        for layer in range(3)
        for head in range(4)
    ]
    assert sizes == pytest.approx(heads, abs=1e-9)
    assert (value, result) == (pytest.approx(float(alignment_matrix(trace)[1, 1]), abs=1e-6),) * 2
    other = alignment_matrix(record(pipelines["spelling-recurrent"], SOURCE, search=Greedy()))
    reference = quote(f"#/compare?m={ids['spelling-recurrent']}&s={SOURCE}", safe="")
    page = visit().open(f"#/compare?m={ids['spelling']}&s={SOURCE}&ref={reference}")
    until(page, "document.querySelector('[data-heatmap=\"compare.difference\"]') !== null")
    page.locator("[data-heatmap='compare.difference'] [role=gridcell]").focus()
    page.keyboard.press("Enter")
    _, result, sizes = drawer(page)
    terms = [float(alignment_matrix(trace)[0, 0]), -float(other[0, 0])]
    assert sizes == pytest.approx(terms, abs=1e-6)
    assert result == pytest.approx(sum(terms), abs=1e-6)


def test_effects_are_explained(visit, ids, trace, pipelines):
    page = visit().open(f"#/ablation?m={ids['spelling']}&s={SOURCE}&r=4")
    until(page, "document.querySelector('[data-alone] button') !== null")
    name = re.search(r"Effect of (\S+ \d):", page.locator("[data-alone]").inner_text())[1]
    attention, head = name.split()
    edits = [{"kind": "ablate", "attention": attention, "head": int(head)}]
    without = record(pipelines["spelling"], SOURCE, trace.answer.text, edits=edits)["out.total"]
    value, result, sizes = explain(page, f"effect of ablating {name}")
    assert sizes == pytest.approx([float(trace["out.total"]), -float(without)], abs=1e-4)
    assert (value, result) == (pytest.approx(sum(sizes), abs=1e-4),) * 2
    until(page, "document.querySelector('[data-heatmap=\"ablation.effects\"]') !== null")
    page.locator("[data-heatmap='ablation.effects'] [role=gridcell]").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-drawer]').innerText.includes('hidden')")
    expected = float(occlusion(pipelines["spelling"], trace)[4, 0])
    value, result, _ = drawer(page)
    assert (value, result) == (pytest.approx(expected, abs=1e-4),) * 2


def test_output_entropy_and_beam_sums_are_explained(visit, ids, trace):
    page = visit().open(f"#/output?m={ids['spelling']}&s={SOURCE}&r=2")
    p = trace["out.logprobs"][2].double().exp()
    bits = float(-(p * p.log2()).sum())
    value, result, sizes = explain(page, "entropy")
    assert (value, result, len(sizes)) == (pytest.approx(bits, abs=1e-6),) * 2 + (len(p),)
    assert explain(page, "perplexity")[1] == pytest.approx(math.exp2(bits), abs=1e-5)
    made = beam_tree(regard.load("spelling"), SOURCE, Beam(4))
    node = made.nodes[made.answers[0]]
    page = visit().open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4")
    value, result, sizes = explain(page, "sum of log p")
    assert sizes == pytest.approx([made.nodes[at].logp for at in made.path(node.number)], abs=1e-5)
    assert (value, result) == (pytest.approx(node.total, abs=1e-5),) * 2
    assert explain(page, "score")[1] == pytest.approx(node.score, abs=1e-5)


def test_embedding_and_lens_numbers_are_explained(visit, ids, trace, pipelines):
    page = visit().open(f"#/embedding?m={ids['spelling']}&s={SOURCE}")
    until(page, "document.querySelector('[data-bars=neighbours] button') !== null")
    page.locator("[data-bars=neighbours] button").first.click()
    table = pipelines["spelling"].model.source.table.detach().double()
    own = trace.source[0].id
    cosines = torch.nn.functional.cosine_similarity(table[own], table)
    cosines[own] = -1
    assert drawer(page)[1] == pytest.approx(float(cosines.max()), abs=1e-6)
    until(page, "document.querySelector('[data-coordinates]') !== null")
    value, result, sizes = explain(page, "component 1")
    assert (value, len(sizes)) == (pytest.approx(result, abs=1e-6), table.shape[1])
    page = visit().open(f"#/output?m={ids['spelling']}&s={SOURCE}&r=2")
    value, result, _ = explain(page, "probability, final norm")
    expected = math.exp(trace["out.chosen"][2])
    assert (value, result) == (pytest.approx(expected, abs=1e-5),) * 2


def test_derived_numbers_work_in_a_saved_page(visit, ids, trace, offline_page, tmp_path):
    page = visit().open(f"#/heads?m={ids['spelling']}&s={SOURCE}")
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    until(offline_page, "document.querySelectorAll('[data-head]').length > 0")
    _, result, _ = explain(offline_page, "Entropy, layer 0, head 1")
    expected = entropy(trace["enc.0.self.weights"].double())[1]
    assert result == pytest.approx(float(expected), abs=1e-9)
