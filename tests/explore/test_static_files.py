"""The page's files: compressed where the client accepts it, with correct cache headers."""

import gzip

import pytest

from regard.explore import STATIC
from tests.explore.helpers import make_client

SCRIPT = "/explorer.js"


def fetch(client, path: str = SCRIPT, **headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with client.stream("GET", path, headers={"accept-encoding": "identity", **named}) as response:
        return response, b"".join(response.iter_raw())


@pytest.mark.parametrize("path", ["/explorer.js", "/explorer.css", "/", "/icon.svg"])
def test_files_are_gzipped_where_accepted(client, path):
    plain, content = fetch(client, path)
    packed, body = fetch(client, path, accept_encoding="gzip, deflate, br")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(body) == content == (STATIC / (path[1:] or "index.html")).read_bytes()
    assert packed.headers["content-length"] == str(len(body))
    assert packed.headers["content-type"] == plain.headers["content-type"]
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
    assert plain.headers["etag"] != packed.headers["etag"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("br;q=1.0, gzip; q=0.5", "gzip"),
        ("*", "gzip"),
        ("gzip;q=0, *", None),
        ("*;q=0", None),
        ("br", None),
        ("gzip;q=much", None),
        ("", None),
    ],
)
def test_accept_encoding_is_followed(client, accepted, encoding):
    response, _ = fetch(client, accept_encoding=accepted)
    assert response.headers.get("content-encoding") == encoding


def test_unchanged_file_is_not_sent_again(client):
    packed, _ = fetch(client, accept_encoding="gzip")
    again, body = fetch(client, accept_encoding="gzip", if_none_match=packed.headers["etag"])
    assert (again.status_code, body) == (304, b"")
    assert again.headers["etag"] == packed.headers["etag"]
    assert again.headers["vary"] == "Accept-Encoding"
    # The client has the other form: it gets the one that it asks for.
    plain, body = fetch(client, if_none_match=packed.headers["etag"])
    assert (plain.status_code, len(body)) == (200, (STATIC / "explorer.js").stat().st_size)
    since = packed.headers["last-modified"]
    assert fetch(client, accept_encoding="gzip", if_modified_since=since)[0].status_code == 304


def test_ranges_are_bytes_of_the_file(client):
    part, body = fetch(client, accept_encoding="gzip", range="bytes=10-19")
    assert part.status_code == 206
    assert "content-encoding" not in part.headers
    assert body == (STATIC / "explorer.js").read_bytes()[10:20]


def test_head_request_has_no_body(client):
    response = client.head(SCRIPT, headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert int(response.headers["content-length"]) < (STATIC / "explorer.js").stat().st_size / 2
    assert response.content == b""


def test_changed_file_is_compressed_again(models, tmp_path):
    page = tmp_path / "index.html"
    client = make_client(models, static=tmp_path)
    found = []
    for text in ("<p>one</p>", "<p>another</p>"):
        page.write_text(text)
        found.append(fetch(client, "/", accept_encoding="gzip"))
    (first, before), (second, after) = found
    assert gzip.decompress(before) == b"<p>one</p>"
    assert gzip.decompress(after) == b"<p>another</p>"
    assert first.headers["etag"] != second.headers["etag"]
