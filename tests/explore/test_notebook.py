"""Traces in notebooks: an isolated iframe with all numbers inside."""

import base64
import json
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from safetensors.numpy import load

import regard
from regard.errors import RegardError
from regard.explore.model_store import ServedModel
from regard.explore.offline_html import Frame, show
from regard.trace import record


class Tags(HTMLParser):
    """Every tag with its attributes, and the content of `script#offline-data`."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.inside, self.data = [], False, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id") == "offline-data"

    def handle_data(self, data):
        self.data += data if self.inside else ""

    def handle_endtag(self, _):
        self.inside = False


@pytest.fixture(scope="module")
def pipelines(folders):
    return {
        family: regard.load(folder, device="cpu", long="allow")
        for family, folder in folders.items()
    }


def parse_frame(frame):
    """The attributes of the iframe and the page inside, as a browser reads them."""
    ((tag, attributes),) = Tags(frame._repr_html_()).tags
    assert tag == "iframe"
    return attributes, Tags(attributes["srcdoc"])


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_frame_contains_every_number(pipelines, folders, family):
    trace = record(pipelines[family], "zebra")
    attributes, page = parse_frame(trace.show(height=500))
    block = json.loads(page.data)
    tensors = load(base64.b64decode(block["tensors"]))
    assert set(tensors) == set(trace.names)
    for name in trace.names:
        np.testing.assert_array_equal(tensors[name], trace[name].numpy())
    assert block["request"]["source"] == "zebra"
    assert block["request"]["target"] is None
    assert block["model"]["sha8"] == ServedModel(folders[family]).sha8
    assert "height:500px" in attributes["style"]


def test_frame_is_sandboxed(pipelines):
    attributes, page = parse_frame(show(record(pipelines["transformer"], "zebra")))
    assert attributes["sandbox"].split() == ["allow-scripts", "allow-downloads"]
    tags = [tag for tag, _ in page.tags]
    kinds = [found.get("http-equiv") for _, found in page.tags]
    policy = kinds.index("Content-Security-Policy")
    assert "default-src 'none'" in page.tags[policy][1]["content"]
    assert tags.index("base") < policy
    assert not [found for _, found in page.tags if "src" in found]


def test_markup_in_the_source_is_escaped(pipelines):
    markup = """</script><b title="x">&amp;'--></iframe>"""
    trace = record(pipelines["transformer"], markup)
    attributes, page = parse_frame(trace.show())
    assert attributes["title"].startswith(f"Regard: {markup} → ")
    assert json.loads(page.data)["trace"]["source"] == markup
    assert "b" not in [tag for tag, _ in page.tags]


def test_frame_contains_the_target_and_the_edits(pipelines):
    edit = {"kind": "ablate", "attention": "dec.0.cross", "head": 1, "by": "mean"}
    trace = record(pipelines["transformer"], "zebra", "Z Z AH", edits=[edit])
    _, page = parse_frame(trace.show())
    block = json.loads(page.data)
    assert block["request"]["target"] == "Z Z AH"
    assert block["request"]["edits"] == [edit]
    assert block["trace"]["edits"][0]["label"] == "head 1 of dec.0.cross set to mean"


def test_save_writes_a_standalone_page(pipelines, tmp_path):
    frame = show(record(pipelines["recurrent"], "n"))
    written = frame.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert written == frame.page
    assert [tag for tag, _ in Tags(written).tags][:2] == ["html", "head"]
    assert "iframe" not in [tag for tag, _ in Tags(written).tags]
    with pytest.raises(RegardError, match=r"cannot write .*nowhere.*; choose another path"):
        frame.save(tmp_path / "nowhere" / "page.html")


def test_bfloat16_models_can_be_shown(folders):
    pipeline = regard.load(folders["transformer"], device="cpu")
    pipeline.model.to(torch.bfloat16)
    trace = record(pipeline, "zebra", "Z IY")
    _, page = parse_frame(trace.show())
    logp = json.loads(page.data)["trace"]["output"]["logp"]
    assert logp == pytest.approx(float(trace["out.total"]))


def test_invalid_heights_and_long_targets(pipelines):
    pipeline = pipelines["transformer"]
    with pytest.raises(RegardError, match="height must be at least 1 pixel; got 0"):
        show(record(pipeline, "zebra", "Z"), height=0)
    with pytest.raises(
        RegardError, match="the target has 513 tokens; the page shows up to 512: shorten it"
    ):
        show(record(pipeline, "n", " ".join(["Z"] * 513)))


def test_repr_of_a_frame_is_short():
    assert repr(Frame("<html>", 720, "Regard: a → b")) == "Frame(height=720, title='Regard: a → b')"
    assert regard.show is show
