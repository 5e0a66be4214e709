"""The Embedding page of a model with a scale and a norm of its own, as in BART."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard.config import TransformerSettings
from regard.trace import record
from tests.browser.conftest import explorer
from tests.explore.helpers import SOURCE, save_bundle

SETTINGS = TransformerSettings(
    width=16,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    ffn_width=12,
    position="learned",
    norm_order="post",
    embedding_norm=True,
    embedding_scale=2.5,
    output_bias=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bundle(tmp_path_factory.mktemp("models") / "bart", settings=SETTINGS)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with explorer(folder) as found:
        yield found


def test_the_scale_and_the_norm_are_shown(visit, folder: Path):
    page = visit().open(f"#/embedding?s={SOURCE}")
    assert page.get_by_text("E[id] · 2.5", exact=True).count() == 1
    assert page.get_by_text(re.compile("A norm of it enters layer 0")).count() == 1
    trace = record(regard.load(folder, device="cpu"), SOURCE)
    terms = page.locator(".equation .term")
    names = terms.locator("code").all_inner_texts()
    assert names == ["src.embed", "src.position", "src.sum", "src.norm"]
    numbers = [float(text.replace("−", "-")) for text in terms.locator("button").all_inner_texts()]
    at = int(re.search(r"Position (\d+)", page.locator(".equation").inner_text())[1])
    expected = [float(trace[name][at, 0]) for name in names]
    assert numbers == pytest.approx(expected, abs=6e-5)


def test_the_logit_lens_starts_at_the_embedding(visit):
    page = visit().open(f"#/output?s={SOURCE}")
    first = page.locator(".lens .row").nth(1)
    assert "token embedding" in first.inner_text()
    assert "tgt.norm" in first.inner_text()
