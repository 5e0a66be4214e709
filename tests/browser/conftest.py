"""Fixtures of the browser tests: a running explorer and headless Chromium.

Every wait is for a condition, with a timeout that a heavily loaded machine does not reach.
Without Chromium the tests are skipped.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import regard
from regard.pretrained import MODELS

BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
CHROMIUM = os.environ.get("REGARD_CHROMIUM") or next(
    filter(None, map(shutil.which, BROWSERS)), None
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]

TIMEOUT = 180  # seconds: a bound for a hung page, never a measure of speed
POLL = 25  # milliseconds between two looks at a condition

# Counts the fetches whose bodies have not been read yet. It runs inside the page, before the page's
# own script: there a count of zero is final, because whatever the page does with a response (and
# whatever it requests next) happens before the page answers the test again.
COUNT_FETCHES = """(() => {
  window.unfinishedFetches = 0;
  const original = window.fetch;
  window.fetch = async (...request) => {
    window.unfinishedFetches++;
    let unread = true;
    const done = () => { if (unread) window.unfinishedFetches--; unread = false; };
    try {
      const response = await original(...request);
      if (!response.ok) done();
      for (const read of ["json", "blob", "arrayBuffer"])
        response[read] = () => Response.prototype[read].call(response).finally(done);
      return response;
    } catch (error) {
      done();
      throw error;
    }
  };
})()"""
IDLE = "window.unfinishedFetches === 0 && !document.querySelector('[aria-busy=true]')"
TWO_FRAMES = """new Promise(done =>
  requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""


@contextmanager
def explorer(*folders: Path) -> Iterator[str]:
    """The address of `regard explore`, started on some bundles as a user starts it."""
    command = [sys.executable, "-m", "regard", "explore", *map(str, folders)]
    command += ["--port", "0", "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout
    line = server.stdout.readline()
    yield next(word for word in line.split() if word.startswith("http://")).rstrip("/")
    server.send_signal(signal.SIGINT)
    assert server.wait(TIMEOUT) == 0
    server.stdout.close()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of an explorer of the included models."""
    with explorer() as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium. Playwright runs an event loop in this thread until the module ends; tests
    of other modules need their own."""
    if CHROMIUM is None:
        pytest.skip("Chromium not found; install it (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=1000 * TIMEOUT
        )
        yield chromium
        chromium.close()


def until(page, condition: str) -> None:
    """Wait until a JavaScript expression is true on a page.

    Playwright's own `wait_for_function` evaluates text, which the page's policy forbids.
    """
    wait_for(page, lambda: page.evaluate(condition), condition)


def wait_for(page, condition: Callable[[], object], description: str) -> None:
    """Wait until a condition about a page holds."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true after {TIMEOUT} s on {page.url}: {description}")
        page.wait_for_timeout(POLL)


def wait_until_idle(page) -> None:
    """Wait until a page is idle and still is two frames later, when observers may load more."""

    def stays_idle() -> bool:
        return page.evaluate(IDLE) and page.evaluate(TWO_FRAMES) and page.evaluate(IDLE)

    wait_for(page, stays_idle, "the page is idle")


def download_export(page, label: str) -> bytes:
    """The file that an entry of the Export menu saves."""
    page.get_by_role("button", name=re.compile("^Export")).click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=re.compile(label)).first.click()
    return Path(download.value.path()).read_bytes()


def new_context(browser, **options):
    """A browser context whose every wait has the generous timeout."""
    context = browser.new_context(**options)
    context.set_default_timeout(1000 * TIMEOUT)
    context.add_init_script(COUNT_FETCHES)
    return context


class Visit:
    """A page that records its console errors and its requests to other hosts."""

    def __init__(self, page, address: str) -> None:
        self.page, self.address = page, address
        self.console_errors: list[str] = []
        self.foreign_requests: list[str] = []
        page.on("console", self._record_message)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("request", lambda request: self._record_request(request.url))

    def _record_message(self, message) -> None:
        if message.type in ("error", "warning"):
            self.console_errors.append(message.text)

    def _record_request(self, url: str) -> None:
        parts, own = urlsplit(url), urlsplit(self.address)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != own.netloc:
            self.foreign_requests.append(url)

    def open(self, hash: str):
        """Open a view and wait until its numbers are loaded."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/{hash}")
        self.wait_until_idle()
        return self.page

    def wait_until_idle(self) -> None:
        """Wait until every response has been read and nothing on the page is busy."""
        wait_until_idle(self.page)


@pytest.fixture
def visit(browser, address) -> Iterator[Callable[..., Visit]]:
    """Open pages: `visit(theme=…, width=…)`. No page may reach another host or log an error.

    `clean=False` is for tests that provoke an error, which the browser logs."""
    visits: list[Visit] = []
    contexts = []

    def start(
        theme: str = "light",
        width: int = 1280,
        height: int = 900,
        clean: bool = True,
        motion: str = "reduce",
    ):
        context = new_context(
            browser,
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion=motion,
            accept_downloads=True,
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        contexts.append(context)
        visit = Visit(context.new_page(), address)
        if clean:
            visits.append(visit)
        return visit

    yield start
    for context in contexts:
        context.close()
    assert [url for visit in visits for url in visit.foreign_requests] == []
    assert [error for visit in visits for error in visit.console_errors] == []


@pytest.fixture
def offline_page(browser):
    """A page without a network, for files saved by the explorer."""
    context = new_context(browser, offline=True)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def ids(address) -> dict[str, str]:
    """The ids of the served models by name."""
    with urlopen(f"{address}/api/models", timeout=TIMEOUT) as response:
        return {model["name"]: model["id"] for model in json.load(response)["models"]}


@pytest.fixture(scope="session")
def pipelines() -> dict[str, regard.Pipeline]:
    """The included models in Python: the reference for what the page shows."""
    return {
        path.name: regard.load(path, device="cpu")
        for path in sorted(MODELS.iterdir())
        if path.is_dir()
    }
