"""Masked weights look different from small ones and are announced as masked."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image

PALETTE = json.loads((Path(__file__).parents[2] / "src/regard/plots/palette.json").read_text())


def colours(page, heatmap, i: int, j: int) -> set[str]:
    """All colours inside one cell, as hexadecimal."""
    heatmap.scroll_into_view_if_needed()
    data = heatmap.evaluate("node => ({...node.dataset})")
    picture = Image.open(io.BytesIO(heatmap.locator("canvas").screenshot())).convert("RGB")
    width, height = float(data["cellWidth"]), float(data["cellHeight"])
    left, top = float(data["left"]) + j * width, float(data["top"]) + i * height
    inside = picture.crop(tuple(map(int, (left + 1, top + 1, left + width - 2, top + height - 2))))
    return {f"#{r:02x}{g:02x}{b:02x}" for _, (r, g, b) in inside.getcolors(10_000)}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_masked_weights_are_hatched(visit, ids, theme):
    page = visit(theme=theme).open(f"#/attention?m={ids['spelling']}&s=attention&a=dec.0.self")
    weights = page.locator("[data-heatmap='lab.weights']")
    face = PALETTE["masked" if theme == "light" else "masked_dark"]["face"].lower()
    assert face in colours(page, weights, 1, 4)  # after the query: masked
    assert face not in colours(page, weights, 4, 1)
    cell = weights.locator("[role=gridcell]")
    cell.focus()
    page.keyboard.press("ArrowRight")  # row 0, column 1
    assert cell.get_attribute("aria-label").endswith(": 0, masked")
    page.keyboard.press("ArrowLeft")
    assert "masked" not in cell.get_attribute("aria-label")
    assert page.locator("[data-view='lab.weights']").get_by_text("masked", exact=True).is_visible()
    bars = page.locator("[data-bars='row.weights'] li")
    assert bars.nth(1).inner_text().split()[-1] == "masked"


def test_encoder_weights_are_never_masked(visit, ids):
    page = visit().open(f"#/attention?m={ids['spelling']}&s=attention&a=enc.0.self")
    view = page.locator("[data-view='lab.weights']")
    assert view.get_by_text("masked", exact=True).count() == 0
