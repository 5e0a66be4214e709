"""The merges of each word on the Tokens page, against the `tokenizers` library."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import regard
from tests.browser.conftest import download_export, explorer, until
from tests.browser.drawers import drawer
from tests.explore.helpers import BPE_SOURCE, save_bpe_bundle

SHOWN = "document.querySelectorAll('[data-word]').length > 0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bpe_bundle(tmp_path_factory.mktemp("models") / "bpe")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with explorer(folder) as found:
        yield found


@pytest.fixture(scope="module")
def tokenizer(folder: Path):
    return regard.load(folder, device="cpu").bundle.source


def source_words(page):
    return page.locator("[data-view='merges.source'] [data-word]")


def test_each_word_shows_its_tokens(visit, tokenizer):
    page = visit().open(f"#/tokens?s={BPE_SOURCE}")
    until(page, SHOWN)
    words = source_words(page)
    found = [
        words.nth(k).locator(".node.token .piece").all_inner_texts() for k in range(words.count())
    ]
    encoded = tokenizer.library.encode(BPE_SOURCE, add_special_tokens=False)
    expected: dict[int, set[str]] = {}
    for word, token in zip(encoded.word_ids, encoded.tokens, strict=True):
        expected.setdefault(word, set()).add(token.replace(" ", "␣"))
    assert [set(tokens) for tokens in found] == list(expected.values())


def test_steps_follow_the_ranks(visit, tokenizer):
    page = visit().open(f"#/tokens?s={BPE_SOURCE}")
    until(page, SHOWN)
    page.get_by_role("button", name=re.compile("^Word “␣newest”")).first.click()
    until(page, "document.querySelector('[data-steps=\" newest\"]') !== null")
    merges = json.loads(tokenizer.library.to_str())["model"]["merges"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    symbols = list(" newest")
    lines = page.locator("[data-view='merges.source'] [data-steps] li")
    shown = [lines.nth(k).locator(".symbol").all_inner_texts() for k in range(lines.count())]
    expected = [[one.replace(" ", "␣") for one in symbols]]
    numbers = []
    while True:
        pairs = list(pairwise(symbols))
        known = [(ranks[pair], at) for at, pair in enumerate(pairs) if pair in ranks]
        if not known:
            break
        rank, at = min(known)
        numbers.append((rank, [ranks.get(pair, float("inf")) for pair in pairs]))
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
        expected.append([one.replace(" ", "␣") for one in symbols])
    assert shown == expected
    assert len(numbers) > 1
    for k, (rank, sizes) in enumerate(numbers, 1):
        lines.nth(k).get_by_role("button").click()
        until(page, f"document.querySelector('[data-drawer]').innerText.includes('step {k}')")
        value, result, terms = drawer(page)
        assert (value, result) == (rank, rank)
        finite = [one for one in sizes if one < float("inf")]
        assert terms == (finite if len(sizes) > 1 else [])  # the others have no bar


def test_merges_are_in_a_saved_page(visit, offline_page, tmp_path):
    page = visit().open(f"#/tokens?s={BPE_SOURCE}")
    until(page, SHOWN)
    count = page.locator("[data-word]").count()
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    until(offline_page, f"document.querySelectorAll('[data-word]').length === {count}")
    shown = offline_page.locator("[data-word]").evaluate_all("all => all.map(w => w.dataset.word)")
    assert "".join(shown).startswith(BPE_SOURCE)
