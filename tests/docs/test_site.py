"""The built site: strict build, no broken links, nothing from other hosts, all pages listed."""

import functools
import http.server
import runpy
import threading
import tomllib
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS
from tests.docs.site_crawler import faults, read_page

ROOT = Path(__file__).parents[2]
SHOWN = ["index.html", "reference/api.html", "concepts/index.html", "start/tutorial.html"]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The result of the build, and its folder."""
    folder = tmp_path_factory.mktemp("site")
    result = runpy.run_path(str(ROOT / "docs/scripts/build.py"))["build"](folder)
    return result, folder / "site"


@pytest.fixture(scope="module")
def site(build) -> Path:
    return build[1]


def test_the_site_builds_in_strict_mode(build):
    result, _ = build
    assert result.returncode == 0, result.stdout
    assert "No issues found" in result.stdout


def test_no_link_is_broken_and_nothing_is_external(site: Path):
    assert list(faults(site)) == []


def test_the_crawler_finds_every_fault(tmp_path: Path):
    (tmp_path / "a.css").write_text("x { background: url(https://host/x.png) }")
    (tmp_path / "index.html").write_text(
        '<a href="missing.html">x</a><a href="#no">x</a><a href="b.html#no">x</a>'
        '<a href="b.html#yes">x</a><a href="https://host/">x</a>'
        '<script src="https://host/x.js"></script><img src="//host/x.png">'
        '<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://host/">'
    )
    (tmp_path / "b.html").write_text('<p id="yes"><img src="gone.png">')
    assert list(faults(tmp_path)) == [
        "b.html: missing resource gone.png",
        "index.html: broken link missing.html",
        "index.html: missing anchor #no",
        "index.html: missing anchor b.html#no",
        "index.html: external request https://host/x.js",
        "index.html: external request //host/x.png",
        "a.css: external request https://host/x.png",
    ]


def nav_pages(entries: list | str) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    return [page for entry in entries for value in entry.values() for page in nav_pages(value)]


def test_every_page_is_in_the_navigation():
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(nav_pages(nav)) == sorted(pages)


def test_source_pages_show_the_linked_line(site: Path):
    page = read_page(site / "source/tests/facts/test_000.py.html")
    assert "__codelineno-0-1" in page.ids


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_browser_requests_nothing_from_other_hosts(site: Path):
    handler = functools.partial(QuietHandler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = f"http://127.0.0.1:{server.server_address[1]}/"
    requests: list[str] = []
    errors: list[str] = []
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page(viewport={"width": 390, "height": 844})
            page.on("request", lambda request: requests.append(request.url))
            page.on("pageerror", lambda error: errors.append(str(error)))
            for name in SHOWN:
                page.goto(own + name)
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= 390, f"{name} is {width} pixels wide on a phone"
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    assert len(requests) > len(SHOWN)
    outside = [url for url in requests if not url.startswith((own, "data:", "blob:"))]
    assert (outside, errors) == ([], [])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *arguments: object) -> None:
        """Nothing."""
