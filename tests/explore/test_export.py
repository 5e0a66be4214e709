"""Exports open in other programs and hold the numbers."""

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

from regard.explore.frozen import frozen, inside_json, inside_script
from tests.explore.small import client, refused

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
def held(request, web, ids, traces):
    body = {"model": ids[request.param], "source": "zebra", "decode": {"method": "greedy"}}
    return traces[web.post("/api/trace", json=body).json()["id"]]


@pytest.fixture
def export(web, held):
    def ask(format, **query):
        answer = web.get(f"/api/trace/{held.id}/export", params={"format": format, **query})
        assert answer.status_code == 200, answer.text
        suffix = {"python": "py"}.get(format, format)
        assert answer.headers["content-disposition"].endswith(f'-{held.id}.{suffix}"')
        return answer.content

    return ask


def test_arrays_hold_every_tensor(export, held, tmp_path):
    (tmp_path / "t").write_bytes(export("safetensors"))
    zipped = np.load(io.BytesIO(export("npz")), allow_pickle=False)
    with safe_open(tmp_path / "t", framework="np") as file:
        assert json.loads(file.metadata()["trace"])["id"] == held.id
        assert set(file.keys()) == set(zipped) == set(held.trace.names)
        for name in held.trace.names:
            np.testing.assert_array_equal(file.get_tensor(name), held.trace[name].numpy())
            np.testing.assert_array_equal(zipped[name], held.trace[name].numpy())
    assert set(load(export("safetensors", name="out.logits"))) == {"out.logits"}


def test_json_holds_the_named_tensors(export, held):
    name = f"{held.trace.attentions[-1].name}.weights"
    found = json.loads(export("json", name=[name, "out.total"]))
    assert found["trace"]["id"] == held.id
    np.testing.assert_array_equal(np.float32(found["tensors"][name]), held.trace[name].numpy())
    assert found["tensors"]["out.total"] == float(held.trace["out.total"])
    assert json.loads(export("json"))["tensors"] == {}
    masked = [name for name in held.trace.names if name == "dec.0.self.masked"]
    if masked:
        assert json.loads(export("json", name=masked))["tensors"][masked[0]][0][0][1] == "-inf"


def test_csv_has_a_line_for_each_number_with_its_tokens(export, held):
    name = f"{held.trace.attentions[0].name}.weights"
    header, *rows = csv.reader(io.StringIO(export("csv", name=name).decode()))
    tensor = held.trace[name]
    recurrent = held.model.family == "recurrent"
    axes = (
        ["target", "target token", "source", "source token"]
        if recurrent
        else ["query", "query token", "key", "key token"]
    )
    assert header == ["head", *axes, "value"]
    assert len(rows) == tensor.numel()
    for head, query, _, key, word, value in rows:
        assert float(value) == float(tensor[int(head), int(query), int(key)])
        assert word == [*"zebra", "< end >"][int(key)]


def test_copied_python_gives_the_same_numbers(export, held):
    name = f"{held.trace.attentions[-1].name}.weights"
    text = export("python", name=name).decode()
    assert f"print(trace[{name!r}])" in text
    scope = {"print": lambda *_: None}
    exec(compile(text, "copied", "exec"), scope)
    assert scope["trace"].answer.text == held.trace.answer.text
    np.testing.assert_array_equal(scope["trace"][name].numpy(), held.trace[name].numpy())


def test_copied_python_keeps_quotes_and_edits(web, ids, held):
    source = "a\"'\\\n{ab}"
    cut = {"kind": "knock-out", "attention": held.trace.attentions[0].name, "head": 0, "by": "uniform"}
    ask = {"model": ids[held.model.family], "source": source, "target": "Z", "edits": [cut]}
    found = web.post("/api/trace", json=ask).json()
    scope = {"print": lambda *_: None}
    exec(web.get(f"/api/trace/{found['id']}/export", params={"format": "python"}).text, scope)
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
    for name, text in (("index.html", PAGE), ("explorer.js", SCRIPT), ("explorer.css", STYLE), ("icon.svg", "<svg/>")):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_one_file_holds_the_page_and_all_numbers(held, static):
    page = Page(frozen(held, "#/wall?<b>", static))
    style, data, script = page.texts
    assert style == STYLE.replace("</", "<\\/")
    assert script == inside_script(SCRIPT)
    found = json.loads(data)
    assert (found["trace"]["id"], found["model"], found["hash"]) == (held.id, held.model.entry, "#/wall?<b>")
    assert found["graph"]["family"] == held.model.family
    tensors = load(base64.b64decode(found["tensors"]))
    assert set(tensors) == set(held.trace.names)
    np.testing.assert_array_equal(tensors["out.logits"], held.trace["out.logits"].numpy())
    links = [attributes.get("src") or attributes.get("href") for _, attributes in page.tags]
    assert [link for link in links if link] == ["data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()]
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_frozen_views_are_those_of_the_server(held, static, web):
    reads = json.loads(Page(frozen(held, "", static)).texts[1])["reads"]
    for path, content in reads.items():
        assert content == web.get(f"/api/trace/{held.id}/{path}").json()
    rows, columns = len(held.trace.target), len(held.trace.source)
    kinds = [path.partition("?")[0] for path in reads]
    counts = {kind: kinds.count(kind) for kind in kinds}
    crossing = sum(one.kind == "cross" for one in held.trace.attentions)
    both = rows + columns
    expected = {"space": 2, "neighbours": both, "walk": both, "output": rows, "alignment": 1 + crossing, "wall": 1}
    assert counts == {**expected, "beam": 1, "causes": 1}


def test_nothing_inside_ends_a_script():
    assert "</script" not in inside_script(SCRIPT).lower()
    assert "<!--" not in inside_script(SCRIPT)
    text = json.dumps({"a": "</script><!--<script>"})
    assert "<" not in inside_json(text)
    assert json.loads(inside_json(text)) == json.loads(text)


def test_the_page_and_its_export_come_from_the_same_folder(models, traces, held, static, tmp_path):
    web = client(models, traces, static=static)
    assert web.get("/").text == PAGE
    assert web.get("/explorer.js").headers["content-type"].startswith("text/javascript")
    assert inside_script(SCRIPT) in web.get(f"/api/trace/{held.id}/export?format=html").text
    bare = client(models, traces, static=tmp_path / "nowhere")
    assert "install it again" in refused(bare.get(f"/api/trace/{held.id}/export?format=html"), 500, "no-page")
    assert refused(bare.get("/"), 404, "not-found")
    for path in ("/../small.py", "/%2e%2e/small.py", "/..%2fsmall.py"):
        assert web.get(path).status_code == 404
