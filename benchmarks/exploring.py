"""The explorer in a browser: size, first view, click to arithmetic, traces of 20 and 256 tokens.

    python benchmarks/exploring.py            # needs Chromium and the dev packages

Starts `regard explore` on the included models. The ceiling of each time is an empty response of the
same server, or the prediction without a trace.
"""

import gzip
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from harness import Check, no_options, report
from playwright.sync_api import Page, sync_playwright

import regard
from regard.explore import STATIC

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from browser.conftest import CHROMIUM, FLAGS  # the browser of the tests

WORDS = [
    "internationalization",
    "uncharacteristically",
    "electroencephalogram",
    "counterrevolutionary",
]  # 20 letters
LONG = ("internationalization" * 13)[:255]
PHONES = " ".join(["T", "AH", "N"] * 13)


def seconds(run: Callable[[], object]) -> float:
    """The seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def request(address: str, path: str, body: dict | None = None) -> dict:
    """The response of the server to one request."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address + path, data, {"content-type": "application/json"})) as answer:
        return json.load(answer)


def measure_traces(address: str, model: str, name: str) -> list[Check]:
    """Traces of new sources over HTTP: the prediction and every number."""
    checks = []
    request(address, "/api/trace", {"model": model, "source": "attention"})
    times = [
        seconds(lambda w=w: request(address, "/api/trace", {"model": model, "source": w}))
        for w in WORDS
    ]
    pipeline = regard.load(name, device="cpu", long="allow")
    pipeline(WORDS[0])
    alone = statistics.median(seconds(lambda w=w: pipeline(w)) for w in WORDS)
    took = statistics.median(times)
    checks.append(Check(f"{name}: trace of 20 tokens, s", took, alone, 0.3, took < 0.3))
    long = [
        {"model": model, "source": LONG, "target": f"{PHONES} {extra}"}
        for extra in ("AH", "N", "T")
    ]
    took = statistics.median(
        seconds(lambda body=body: request(address, "/api/trace", body)) for body in long
    )
    alone = seconds(lambda: pipeline.score(LONG, PHONES))
    checks.append(Check(f"{name}: trace of 256 tokens, s", took, alone, 5.0, took < 5))
    return checks


def measure_views(page: Page, address: str, model: str) -> list[Check]:
    """The page: opened cold, clicked, and with many tokens."""
    first = []
    for _ in range(5):
        page.goto("about:blank")
        first.append(
            seconds(
                lambda: (page.goto(f"{address}/#/start"), page.locator("main h1").first.wait_for())
            )
        )
    empty = statistics.median(seconds(lambda: request(address, "/healthz")) for _ in range(9))
    took = statistics.median(first)
    checks = [Check("first view, s", took, empty, 1.0, took < 1)]
    lab = f"{address}/#/attention?m={model}&s=attention&a=dec.1.cross"
    took = seconds(
        lambda: (
            page.goto("about:blank"),
            page.goto(lab),
            page.locator("[data-heatmap]").first.wait_for(),
        )
    )
    checks.append(Check("attention lab opened by a link, s", took, empty, 1.0, took < 1))
    page.wait_for_load_state("networkidle")
    took = statistics.median(click_time(page, at) for at in range(15))
    checks.append(Check("click → arithmetic, ms", took, 1e3 * empty, 50, took < 50))
    for name, drawn in (("heads", "main canvas"), ("attention", "[data-heatmap]")):
        link = f"{address}/#/{name}?m={model}&s={LONG}&t={PHONES.replace(' ', '+')}"
        took = seconds(
            lambda link=link, drawn=drawn: (
                page.goto("about:blank"),
                page.goto(link),
                page.locator(drawn).first.wait_for(),
            )
        )
        checks.append(Check(f"256 tokens on the page {name!r}, s", took, None, 5.0, took < 5))
    return checks


CLICK = """async ([at]) => {
  const node = document.querySelector("[data-heatmap$=weights], [data-heatmap]");
  const {left, top, cellWidth, cellHeight, rows, cols} = node.dataset;
  const box = node.querySelector("canvas").getBoundingClientRect();
  const x = box.left + +left + (at % +cols + 0.5) * +cellWidth;
  const y = box.top + +top + (at % +rows + 0.5) * +cellHeight;
  const before = document.querySelector("[data-drawer] .name")?.textContent;
  const start = performance.now();
  const click = new MouseEvent("click", {clientX: x, clientY: y, bubbles: true});
  node.querySelector("canvas").dispatchEvent(click);
  return await new Promise((done) => {
    const check = () => {
      const now = document.querySelector("[data-drawer] .name")?.textContent;
      const busy = document.querySelector("[data-drawer]")?.getAttribute("aria-busy") === "true";
      if (now && now !== before && !busy) done(performance.now() - start);
      else requestAnimationFrame(check);
    };
    requestAnimationFrame(check);
  });
}"""


def click_time(page: Page, at: int) -> float:
    """Milliseconds from a click on a cell to its arithmetic in the drawer, by the browser's
    clock."""
    page.locator("[data-heatmap]").first.scroll_into_view_if_needed()
    return float(page.evaluate(CLICK, [at]))


def main() -> None:
    """Measure and report."""
    no_options(__doc__)
    packed = len(gzip.compress((STATIC / "explorer.js").read_bytes(), 9)) / 1000
    checks = [Check("JavaScript, gzipped, kB", packed, None, 120, packed <= 120)]
    command = [sys.executable, "-m", "regard", "explore", "--port", "0", "--no-browser"]
    start = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        address = next(
            word for word in server.stdout.readline().split() if word.startswith("http")
        ).rstrip("/")
        request(address, "/healthz")
        took = time.perf_counter() - start
        checks.append(Check("command → alive, s", took, None, 2.0, took < 2))
        ids = {model["name"]: model["id"] for model in request(address, "/api/models")["models"]}
        for name, id in ids.items():
            checks += measure_traces(address, id, name)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            checks += measure_views(
                browser.new_page(viewport={"width": 1280, "height": 900}), address, ids["spelling"]
            )
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
    report("exploring", checks)


if __name__ == "__main__":
    main()
