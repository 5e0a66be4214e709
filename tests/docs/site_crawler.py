"""Finds broken links, missing anchors and external requests in a folder of HTML pages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {  # attributes that make a browser load something
    "src": {"script", "img", "iframe", "source", "video", "audio", "embed", "track"},
    "href": {"link", "use", "image"},
    "srcset": {"img", "source"},
    "data": {"object"},
}
NOT_LOADED = {"canonical", "alternate", "next", "prev"}  # relations of <link> that load nothing


@dataclass
class PageLinks(HTMLParser):
    """The ids, the links and the loaded resources of one page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Record what a tag refers to."""
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values[name] for name in ("id", "name") if name in values and tag != "meta"}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name, tags in LOADED.items():
            skipped = tag == "link" and values.get("rel", "") in NOT_LOADED
            if tag in tags and name in values and not skipped:
                self.loaded.append(values[name].split(" ")[0])
        self.loaded += re.findall(r"url\(['\"]?([^'\")]+)", values.get("style", ""))


def read_page(file: Path) -> PageLinks:
    """Parse a page."""
    page = PageLinks()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def faults(folder: Path) -> Iterator[str]:
    """Everything that is wrong in the pages and style sheets of a folder."""
    pages = {file: read_page(file) for file in sorted(folder.rglob("*.html"))}
    for file, page in pages.items():
        name = file.relative_to(folder)
        for link in page.links:
            if not urlsplit(link).scheme:
                yield from (f"{name}: {fault}" for fault in link_faults(link, file, pages, folder))
        for link in page.loaded:
            yield from (f"{name}: {fault}" for fault in load_faults(link, file, folder))
    for file in sorted(folder.rglob("*.css")):
        for link in re.findall(r"url\(['\"]?([^'\")]+)", file.read_text(encoding="utf-8")):
            name = file.relative_to(folder)
            yield from (f"{name}: {fault}" for fault in load_faults(link, file, folder))


def link_faults(link: str, file: Path, pages: dict[Path, PageLinks], folder: Path) -> Iterator[str]:
    """A link must lead to a file of the folder, and to an id that this page has."""
    parts = urlsplit(link)
    target = located(parts.path, file, folder) if parts.path else file
    if not target.is_file():
        yield f"broken link {link}"
    elif target in pages and unquote(parts.fragment) not in {"", *pages[target].ids}:
        yield f"missing anchor {link}"


def located(path: str, file: Path, folder: Path) -> Path:
    """The file that a path on a page refers to."""
    start = folder if path.startswith("/") else file.parent
    target = (start / unquote(path).lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target


def load_faults(link: str, file: Path, folder: Path) -> Iterator[str]:
    """A loaded resource must be a file beside the page, or inside it."""
    parts = urlsplit(link)
    if parts.scheme == "data" or link.startswith("#"):
        return
    if parts.scheme or parts.netloc:
        yield f"external request {link}"
    elif not located(parts.path, file, folder).is_file():
        yield f"missing resource {link}"
