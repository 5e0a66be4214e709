"""A real server and a real browser. Where no Chromium is installed these tests are skipped, and say so."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import regard
from regard.shipped import MODELS

CHROMIUM = os.environ.get("REGARD_CHROMIUM") or next(
    filter(
        None,
        map(
            shutil.which,
            ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        ),
    ),
    None,
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


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """`regard explore` on the shipped models, as a person starts it."""
    command = [sys.executable, "-m", "regard", "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert server.stdout
    said = server.stdout.readline()
    yield next(word for word in said.split() if word.startswith("http://")).rstrip("/")
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0
    server.stdout.close()


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; install one (Debian: apt-get install chromium) to run the browser tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def until(page, truth: str) -> None:
    """Wait for something to be true on a page. (Playwright's own waiting evaluates text, which the policy forbids.)"""
    for _ in range(400):
        if page.evaluate(truth):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never true: {truth}")


def exported(page, label: str) -> bytes:
    """What an entry of the Export menu saves."""
    page.get_by_role("button", name=re.compile("^Export")).click()
    with page.expect_download() as coming:
        page.get_by_role("menuitem", name=re.compile(label)).first.click()
    return Path(coming.value.path()).read_bytes()


class Watched:
    """A page whose every request and complaint is kept."""

    def __init__(self, page, address: str) -> None:
        self.page, self.address = page, address
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self.pending: set[object] = set()
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: (self.pending.add(request), self._asked(request.url)))
        page.on("requestfinished", lambda request: self.pending.discard(request))
        page.on("requestfailed", lambda request: self.pending.discard(request))

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.address).netloc:
            self.outside.append(url)

    def open(self, hash: str):
        """Go to a view, and wait until its numbers are there."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/{hash}")
        self.settled()
        return self.page

    def settled(self) -> None:
        """Wait for what is loading: nothing asked for and nothing busy, three looks in a row."""
        quiet = 0
        for _ in range(400):
            busy = self.pending or self.page.evaluate("!!document.querySelector('[aria-busy=true]')")
            quiet = 0 if busy else quiet + 1
            if quiet == 3:
                return
            self.page.wait_for_timeout(40)
        raise AssertionError(f"{self.page.url} never came to rest")


@pytest.fixture
def visit(browser, address) -> Iterator[Callable[..., Watched]]:
    """Opens watched pages: `visit(theme=…, width=…)`. Whatever a test does, nothing may leave this machine, and no
    page may complain."""
    seen: list[Watched] = []
    contexts = []

    def open_one(theme: str = "light", width: int = 1280, height: int = 900, clean: bool = True) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        contexts.append(context)
        watched = Watched(context.new_page(), address)
        if clean:
            seen.append(watched)
        return watched

    yield open_one
    for context in contexts:
        context.close()
    assert [url for one in seen for url in one.outside] == []
    assert [said for one in seen for said in one.complaints] == []


@pytest.fixture(scope="session")
def ids(address) -> dict[str, str]:
    """The ids of the models that are offered, by name."""
    with urlopen(f"{address}/api/models") as answer:
        return {model["name"]: model["id"] for model in json.load(answer)["models"]}


@pytest.fixture(scope="session")
def transducers() -> dict[str, regard.Transducer]:
    """The shipped models in Python: what the page shows is held to them."""
    return {path.name: regard.load(path, device="cpu") for path in sorted(MODELS.iterdir())}
