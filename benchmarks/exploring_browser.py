"""The browser of the explorer's benchmark: a server, pages without a cache, times of the browser.

Times are those of the browser's own clock: from the start of a navigation, a keystroke or a click
to the animation frame in which the result is on the page.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from playwright.sync_api import Page, sync_playwright

sys.path.append(str(Path(__file__).parents[1]))
from tests.browser.conftest import CHROMIUM, FLAGS  # the browser of the tests

TIMEOUT = 240_000  # milliseconds
CLICKS = 12

# Milliseconds from the start of the navigation to the first frame with an element and nothing busy.
DRAWN = """([selector]) => new Promise((done) => {
  const look = () => {
    const found = document.querySelector(selector);
    if (found && found.getBoundingClientRect().height > 0
        && !document.querySelector('main [aria-busy=true]'))
      requestAnimationFrame(() => done(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""

# Milliseconds from the last letter to the first frame with another picture.
TYPE = """async ([text]) => {
  const box = document.querySelector('header textarea, header input[type=text], header input');
  const shown = () => [...document.querySelectorAll('[data-live] button')]
    .map((one) => one.innerText).join(' ');
  const before = shown();
  box.focus();
  box.value = text;
  const start = performance.now();
  box.dispatchEvent(new InputEvent('input', { bubbles: true }));
  return await new Promise((done) => {
    const look = () => {
      const now = shown();
      if (now && now !== before) done(performance.now() - start);
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}"""

# Milliseconds from a click on a cell to its arithmetic in the drawer: in the page, and painted. A
# message that is posted in an animation frame arrives when the frame is painted.
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
      if (!now || now === before || busy) return requestAnimationFrame(check);
      const shown = performance.now() - start;
      const frame = new MessageChannel();
      frame.port1.onmessage = () => done([shown, performance.now() - start]);
      frame.port2.postMessage(null);
    };
    requestAnimationFrame(check);
  });
}"""

# What the page has loaded: bytes on the wire and of the files, by name.
LOADED = """() => performance.getEntriesByType('resource').map((one) =>
  [one.name.split('/').pop(), one.encodedBodySize, one.decodedBodySize])"""

READING = 600  # milliseconds between two clicks: the page has followed the one before


def click_times(page: Page, *, closed: bool) -> tuple[float, float]:
    """Median milliseconds from a click to the arithmetic, and to its first painted frame.

    Each click is on another cell. The drawer is closed before each, or open from the start.
    """
    page.evaluate(CLICK, [CLICKS])
    times = []
    for at in range(CLICKS):
        if closed:
            page.keyboard.press("Escape")
            page.locator("[data-drawer]").wait_for(state="detached")
        page.wait_for_timeout(READING)
        times.append(page.evaluate(CLICK, [at]))
    shown, painted = (statistics.median(column) for column in zip(*times, strict=True))
    return shown, painted


class Site:
    """`regard explore` and a browser, stopped at the end of a `with` block."""

    def __init__(self, *models: str) -> None:
        self.command = [sys.executable, "-m", "regard", "explore", *models]

    def __enter__(self) -> Site:
        command = [*self.command, "--port", "0", "--no-browser"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout
        line = self.server.stdout.readline()
        self.address = next(word for word in line.split() if word.startswith("http")).rstrip("/")
        self.request("/healthz")
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        self.models = self.request("/api/models")["models"]
        self.model = self.models[0]["id"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.browser.close()
        self.playwright.stop()
        self.server.send_signal(signal.SIGINT)
        self.server.wait(20)

    def request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON response to one request."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        with urlopen(Request(self.address + path, data, headers)) as answer:
            return json.load(answer)

    def open(self, name: str, **query: Any) -> Page:
        """A page in a new browser context: nothing is cached. Its context is closed by the user."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.goto(f"{self.address}/#/{name}?" + urlencode({"m": self.model, **query}))
        return page

    def drawn(self, name: str, selector: str, **query: Any) -> float:
        """Seconds from the navigation to the drawn view, in a new browser context."""
        page = self.open(name, **query)
        seconds = float(page.evaluate(DRAWN, [selector])) / 1000
        page.context.close()
        return seconds
