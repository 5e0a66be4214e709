"""The explorer in a browser: size, first view, typing, clicks, long texts, a film, a large model.

    python benchmarks/exploring.py            # needs Chromium and the dev packages

Starts `regard explore` on the included models, on a trained model with a film and on an imported
model of 12 × 12 heads with 50,000 tokens. The ceiling of each time is an empty response of the same
server, or the prediction without a trace.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exploring_browser import LOADED, TYPE, Site, click_times
from exploring_film import measure_film, measure_own_film
from exploring_imported import measure_imported
from harness import Check, no_options, report
from playwright.sync_api import Page

import regard

WORDS = [
    "internationalization",
    "uncharacteristically",
    "electroencephalogram",
    "counterrevolutionary",
]  # 20 letters
TYPED = ["t", "ta", "tab", "tabl", "table", "tablet", "tablets"]
TOKENS = 511  # with the end of the source: 512
TARGET_TOKENS = 40
MOST_LETTERS = 4_000  # of a request
SCRIPTS = 150.0  # kB, gzipped, in the first load
VIEW, FOLLOW, CLICKED, LONG_TEXT = 0.7, 0.3, 50.0, 2.0


def seconds(run: Callable[[], object]) -> float:
    """The seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure_traces(site: Site, model: str, name: str) -> list[Check]:
    """Traces of new sources over HTTP: the prediction and every number."""
    site.request("/api/trace", {"model": model, "source": "attention"})
    times = [
        seconds(lambda w=w: site.request("/api/trace", {"model": model, "source": w}))
        for w in WORDS
    ]
    pipeline = regard.load(name, device="cpu", long="allow")
    pipeline(WORDS[0])
    alone = statistics.median(seconds(lambda w=w: pipeline(w)) for w in WORDS)
    took = statistics.median(times)
    return [Check(f"{name}: trace of 20 letters, s", took, alone, 0.3, took < 0.3)]


def measure_loading(site: Site, empty: float) -> list[Check]:
    """The first load: bytes on the wire, and the time to the live picture."""
    times, page = [], None
    for _ in range(5):
        times.append(site.drawn("start", "[data-live] button"))
    page = site.open("start")
    page.locator("[data-live] button").first.wait_for()
    scripts = [(sent, size) for name, sent, size in page.evaluate(LOADED) if name.endswith(".js")]
    page.context.close()
    sent, size = (sum(column) / 1000 for column in zip(*scripts, strict=True))
    took = statistics.median(times)
    return [
        Check("JavaScript of the first load, as sent, kB", sent, size, SCRIPTS, sent <= SCRIPTS),
        Check("compressed to, share", sent / size, None, 0.5, sent / size <= 0.5),
        Check("first view, s", took, empty, VIEW, took <= VIEW),
    ]


def measure_use(site: Site, empty: float) -> list[Check]:
    """Typing on the start page, clicks in the attention lab."""
    page = site.open("start")
    page.locator("[data-live] button").first.wait_for()
    page.wait_for_load_state("networkidle")
    times = [page.evaluate(TYPE, [text]) / 1000 for text in TYPED]
    page.context.close()
    took = statistics.median(times[1:])
    checks = [Check("typing → view, s", took, empty, FOLLOW, took <= FOLLOW)]
    took = site.drawn("attention", "[data-heatmap]")
    checks.append(Check("attention lab opened by a link, s", took, empty, VIEW, took <= VIEW))
    page = site.open("attention")
    page.locator("[data-heatmap]").first.scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    checks += measure_clicks(page, 1e3 * empty)
    page.context.close()
    return checks


def measure_clicks(page: Page, empty: float) -> list[Check]:
    """Clicks that change the open drawer, and clicks that open it."""
    checks = []
    for closed, label in ((False, "click → arithmetic"), (True, "click → opened drawer")):
        for state, took in zip(("", ", painted"), click_times(page, closed=closed), strict=True):
            checks.append(Check(f"{label}{state}, ms", took, empty, CLICKED, took <= CLICKED))
    return checks


def long_texts(site: Site, name: str) -> tuple[str, str]:
    """A source of 511 tokens made of the model's examples, and a target of at least 40."""
    entry = next(one for one in site.models if one["name"] == name)
    spaced = " " if " " in entry["example"] else ""
    site.model = entry["id"]

    def count(text: str, side: str) -> int:
        body = {"model": entry["id"], "text": text, "side": side}
        return len(site.request("/api/tokenize", body)["tokens"])

    words = spaced.join(entry["examples"] * 200)[:MOST_LETTERS]
    low, high = 0, len(words)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if count(words[:middle], "source") <= TOKENS else (low, middle)
    answer = regard.load(name, device="cpu")(entry["examples"][0]).text
    target = answer
    while count(target, "target") < TARGET_TOKENS:
        target += f" {answer}"
    return words[:low], target


def measure_long(site: Site, name: str) -> list[Check]:
    """512 tokens on the pages with the most cells."""
    source, target = long_texts(site, name)
    checks = []
    for page, drawn in (
        ("attention", "[data-heatmap]"),
        ("heads", "main canvas"),
        ("alignment", "[data-heatmap], main svg"),
    ):
        # Another text each time: the server has no trace of it.
        times = [site.drawn(page, drawn, s=source[k:], t=target) for k in range(1, 4)]
        took = statistics.median(times)
        label = f"{name}: 512 tokens on the page {page!r}, s"
        checks.append(Check(label, took, None, LONG_TEXT, took <= LONG_TEXT))
    return checks


def main() -> None:
    """Measure and report."""
    no_options(__doc__)
    start = time.perf_counter()
    with Site() as site:
        took = time.perf_counter() - start
        checks = [Check("command → alive, with the browser, s", took, None, None, True)]
        empty = statistics.median(seconds(lambda: site.request("/healthz")) for _ in range(9))
        names = [model["name"] for model in site.models]
        for model in site.models:
            checks += measure_traces(site, model["id"], model["name"])
        checks += measure_loading(site, empty) + measure_use(site, empty)
        for name in dict.fromkeys((names[0], "spelling")):
            checks += measure_long(site, name)
        checks += measure_own_film(site)
    with tempfile.TemporaryDirectory() as folder:
        checks += measure_film(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        checks += measure_imported(Path(folder))
    report("exploring", checks)


if __name__ == "__main__":
    main()
