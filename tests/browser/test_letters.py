"""Tokenizers without merges, and the classes of tokens in the embedding plane."""

import re
import unicodedata

import pytest

from tests.browser.conftest import until

SOURCE = "attention"


@pytest.mark.parametrize(
    ("name", "side", "text"),
    [("spelling", 0, "Every character is one token"), ("spelling", 1, "Every word is one token")],
)
def test_a_tokenizer_without_merges_says_so(visit, ids, name, side, text):
    page = visit().open(f"#/tokens?m={ids[name]}&s={SOURCE}")
    until(page, "document.querySelectorAll('section h3').length > 2")
    assert text in page.locator("section").nth(side).inner_text()
    assert page.locator("[data-word]").count() == 0


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_plane_comes_first_and_counts_classes(visit, ids, pipelines, side):
    page = visit().open(f"#/embedding?m={ids['spelling']}&s={SOURCE}&o.side={side}")
    until(page, "document.querySelector('[data-class]') !== null")
    assert page.locator("section [data-view]").first.get_attribute("data-view") == "space"
    bundle = pipelines["spelling"].bundle
    tokenizer = bundle.source if side == "source" else bundle.target
    labels = [tokenizer.label(id) for id in range(len(tokenizer))]
    special = [text for text in labels if re.fullmatch("< .* >", text)]
    letters = [text for text in labels if text not in special and text[:1].isalpha()]
    vowels = [t for t in letters if unicodedata.normalize("NFD", t)[0].lower() in "aeiou"]
    found = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-class]')]"
        ".map(one => [one.dataset.class, +one.dataset.count]))"
    )
    assert found["special"] == len(special) == 3
    assert found["vowel"] == len(vowels)
    assert found["consonant"] == len(letters) - len(vowels)
    assert sum(found.values()) == len(labels)


def test_a_class_is_chosen_by_keyboard(visit, ids):
    page = visit().open(f"#/embedding?m={ids['spelling']}&s={SOURCE}")
    until(page, "document.querySelector('[data-class]') !== null")
    circles = "[...document.querySelectorAll('[data-view=space] circle')]"
    colours = f"{circles}.map(circle => circle.getAttribute('fill'))"
    assert "var(--line)" not in page.evaluate(colours)
    page.locator("[data-class=vowel]").focus()
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('o.class=vowel')")
    fills = page.evaluate(colours)
    count = page.evaluate("+document.querySelector('[data-class=vowel]').dataset.count")
    assert sum(fill != "var(--line)" for fill in fills) == count
