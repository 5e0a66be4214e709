"""Moving the film repaints every picture, also those that are not on the screen."""

from tests.browser.conftest import until, wait_for
from tests.browser.test_film import (  # noqa: F401 (fixtures)
    SLIDER,
    assert_at,
    film_address,
    film_ids,
    open_page,
    run,
)
from tests.explore.films import STEPS

PICTURES = "[...document.querySelectorAll('main canvas')].map((one) => one.toDataURL())"


def test_every_picture_shows_the_point_of_the_film(open_page):  # noqa: F811
    page = open_page("attention", f"c={STEPS[3]}&a=dec.0.cross")
    assert_at(page, f"step {STEPS[3]} of")
    until(page, "document.querySelectorAll('main canvas').length > 6")
    expected = page.evaluate(PICTURES)
    page = open_page("attention", f"c={STEPS[0]}&a=dec.0.cross")
    assert_at(page, f"step {STEPS[0]} of")
    height = "document.querySelector('main').scrollHeight > 2 * window.innerHeight"
    until(page, height)  # some pictures are far below
    assert page.evaluate(PICTURES) != expected
    page.locator(SLIDER).fill("3")
    assert_at(page, f"step {STEPS[3]} of")
    wait_for(page, lambda: page.evaluate(PICTURES) == expected, "all pictures are repainted")
