"""Exported files: readable by other programs, with the same numbers."""

import base64
import csv
import hashlib
import io
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load

from regard.explore.offline_html import escape_json, escape_script, offline_page
from regard.trace import logit_lens
from tests.explore.helpers import error_message, make_client

SCRIPT = 'const a = "</script><!-- <script>", b = /<\\/ScRiPt/;'
STYLE = "body::after { content: '</style>'; }"
PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <link rel="icon" href="./icon.svg" type="image/svg+xml" />
    <link rel="stylesheet" href="./explorer.css">
  </head>
  <body>
    <div id="app"></div>
    <script src="./explorer.js"></script>
  </body>
</html>
"""


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def stored(request, client, ids, traces):
    body = {"model": ids[request.param], "source": "zebra", "decoding": {"beam": 1}}
    return traces[client.post("/api/trace", json=body).json()["id"]]


@pytest.fixture
def export(client, stored):
    def download(format, **query):
        response = client.get(f"/api/trace/{stored.id}/export", params={"format": format, **query})
        assert response.status_code == 200, response.text
        suffix = {"python": "py"}.get(format, format)
        assert response.headers["content-disposition"].endswith(f'-{stored.id}.{suffix}"')
        return response.content

    return download


def test_arrays_contain_every_tensor(export, stored, tmp_path):
    (tmp_path / "t").write_bytes(export("safetensors"))
    zipped = np.load(io.BytesIO(export("npz")), allow_pickle=False)
    with safe_open(tmp_path / "t", framework="np") as file:
        assert json.loads(file.metadata()["trace"])["id"] == stored.id
        assert set(file.keys()) == set(zipped) == set(stored.trace.names)
        for name in stored.trace.names:
            np.testing.assert_array_equal(file.get_tensor(name), stored.trace[name].numpy())
            np.testing.assert_array_equal(zipped[name], stored.trace[name].numpy())
    assert set(load(export("safetensors", name="out.logits"))) == {"out.logits"}


def test_json_contains_the_selected_tensors(export, stored):
    name = f"{stored.trace.attentions[-1].name}.weights"
    found = json.loads(export("json", name=[name, "out.total"]))
    assert found["trace"]["id"] == stored.id
    np.testing.assert_array_equal(np.float32(found["tensors"][name]), stored.trace[name].numpy())
    assert found["tensors"]["out.total"] == float(stored.trace["out.total"])
    assert json.loads(export("json"))["tensors"] == {}
    masked = [name for name in stored.trace.names if name == "dec.0.self.masked"]
    if masked:
        assert json.loads(export("json", name=masked))["tensors"][masked[0]][0][0][1] == "-inf"


def test_csv_has_one_line_per_number_with_tokens(export, stored):
    name = f"{stored.trace.attentions[0].name}.weights"
    header, *rows = csv.reader(io.StringIO(export("csv", name=name).decode()))
    tensor = stored.trace[name]
    recurrent = stored.model.family == "recurrent"
    query, key = ("target", "source") if recurrent else ("query", "key")
    assert header == ["head", query, f"{query} token", key, f"{key} token", "value"]
    assert len(rows) == tensor.numel()
    for head, query, _, key, token, value in rows:
        assert float(value) == float(tensor[int(head), int(query), int(key)])
        assert token == [*"zebra", "< end >"][int(key)]


def test_exported_python_gives_the_same_numbers(export, stored):
    name = f"{stored.trace.attentions[-1].name}.weights"
    text = export("python", name=name).decode()
    assert f"print(trace[{name!r}])" in text
    scope = {"print": lambda *_: None}
    exec(compile(text, "exported", "exec"), scope)
    assert scope["trace"].answer.text == stored.trace.answer.text
    np.testing.assert_array_equal(scope["trace"][name].numpy(), stored.trace[name].numpy())


def test_exported_python_keeps_quotes_and_edits(client, ids, stored):
    source = "a\"'\\\n{ab}"
    name = stored.trace.attentions[0].name
    edit = {"kind": "ablate", "attention": name, "head": 0, "by": "uniform"}
    body = {"model": ids[stored.model.family], "source": source, "target": "Z", "edits": [edit]}
    found = client.post("/api/trace", json=body).json()
    scope = {"print": lambda *_: None}
    exec(client.get(f"/api/trace/{found['id']}/export", params={"format": "python"}).text, scope)
    assert float(scope["trace"]["out.total"]) == pytest.approx(found["output"]["logp"], abs=1e-6)


class Page(HTMLParser):
    """The elements of a page and the text of each script and style."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._open = ""

    def handle_data(self, data):
        if self._open is not None:
            self._open += data

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.texts.append(self._open)
            self._open = None


@pytest.fixture
def static(tmp_path):
    files = {"index.html": PAGE, "explorer.js": SCRIPT, "explorer.css": STYLE, "icon.svg": "<svg/>"}
    files["arithmetic.js"] = f"const c = {SCRIPT.partition('=')[2]}"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_offline_page_contains_all_numbers(stored, static):
    page = Page(offline_page(stored, "#/heads?<b>", static))
    style, data, arithmetic, script = page.texts
    assert style == STYLE.replace("</", "<\\/")
    assert script == escape_script(SCRIPT)
    found = json.loads(data)
    assert (found["trace"]["id"], found["hash"]) == (stored.id, "#/heads?<b>")
    assert found["model"] == stored.model.entry
    assert found["graph"]["family"] == stored.model.family
    tensors = load(base64.b64decode(found["tensors"]))
    assert set(tensors) == set(stored.trace.names)
    np.testing.assert_array_equal(tensors["out.logits"], stored.trace["out.logits"].numpy())
    links = [attributes.get("src") or attributes.get("href") for _, attributes in page.tags]
    icon = "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()
    assert [link for link in links if link] == [icon]
    metas = {found.get("http-equiv"): found for _, found in page.tags}
    policy = metas["Content-Security-Policy"]["content"]
    assert policy.startswith("default-src 'none'; ")
    assert arithmetic.startswith("const c = ")
    for text in (style, arithmetic, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_offline_views_equal_those_of_the_server(stored, static, client):
    views = json.loads(Page(offline_page(stored, "", static)).texts[1])["views"]
    for path, content in views.items():
        assert content == client.get(f"/api/trace/{stored.id}/{path}").json()
    rows, columns = len(stored.trace.target), len(stored.trace.source)
    kinds = [path.partition("?")[0] for path in views]
    counts = {kind: kinds.count(kind) for kind in kinds}
    cross = sum(one.kind == "cross" for one in stored.trace.attentions)
    both, lens = rows + columns, len(logit_lens(stored.trace, 0))
    assert counts == {
        "embedding-space": 2,
        "tokenization": 2,
        "neighbours": both,
        "residual-stream": both,
        "output": rows,
        "alignment": 1 + cross,
        "occlusion": 1,
        "beam-tree": 1,
        "heads": 1,
        **({"explain-lens-rank": rows * lens} if lens else {}),
    }


def test_escaped_text_cannot_end_a_script():
    assert "</script" not in escape_script(SCRIPT).lower()
    assert "<!--" not in escape_script(SCRIPT)
    text = json.dumps({"a": "</script><!--<script>"})
    assert "<" not in escape_json(text)
    assert json.loads(escape_json(text)) == json.loads(text)


def test_page_and_export_use_the_same_static_folder(models, traces, stored, static, tmp_path):
    client = make_client(models, traces, static=static)
    assert client.get("/").text == PAGE
    assert client.get("/explorer.js").headers["content-type"].startswith("text/javascript")
    assert escape_script(SCRIPT) in client.get(f"/api/trace/{stored.id}/export?format=html").text
    bare = make_client(models, traces, static=tmp_path / "nowhere")
    response = bare.get(f"/api/trace/{stored.id}/export?format=html")
    assert "reinstall regard" in error_message(response, 500, "no-page")
    assert error_message(bare.get("/"), 404, "not-found")
    for path in ("/../helpers.py", "/%2e%2e/helpers.py", "/..%2fhelpers.py"):
        assert client.get(path).status_code == 404
