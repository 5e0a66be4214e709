"""What a notebook shows: a frame whose page holds the numbers and reaches nothing outside of it."""

import base64
import json
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from safetensors.numpy import load

import regard
from regard.errors import RegardError
from regard.explore.models import Offered
from regard.explore.notebook import Frame, show
from regard.trace import record


class Tags(HTMLParser):
    """Every tag with its attributes, and the text that is inside of `script#frozen`."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.inside, self.frozen = [], False, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id") == "frozen"

    def handle_data(self, data):
        self.frozen += data if self.inside else ""

    def handle_endtag(self, _):
        self.inside = False


@pytest.fixture(scope="module")
def pipelines(folders):
    return {family: regard.load(folder, device="cpu", long="allow") for family, folder in folders.items()}


def framed(frame):
    """The frame's attributes and the page inside, as a browser would read them."""
    ((tag, attributes),) = Tags(frame._repr_html_()).tags
    assert tag == "iframe"
    return attributes, Tags(attributes["srcdoc"])


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_the_frame_holds_every_number(pipelines, folders, family):
    trace = record(pipelines[family], "zebra")
    attributes, page = framed(trace.show(height=500))
    block = json.loads(page.frozen)
    held = load(base64.b64decode(block["tensors"]))
    assert set(held) == set(trace.names)
    for name in trace.names:
        np.testing.assert_array_equal(held[name], trace[name].numpy())
    assert block["request"]["source"] == "zebra"
    assert block["request"]["target"] is None
    assert block["model"]["sha8"] == Offered(folders[family]).sha8
    assert "height:500px" in attributes["style"]


def test_the_frame_is_shut_in(pipelines):
    attributes, page = framed(show(record(pipelines["transformer"], "zebra")))
    assert attributes["sandbox"].split() == ["allow-scripts", "allow-downloads"]
    places = [tag for tag, _ in page.tags]
    policy = next(i for i, (_, found) in enumerate(page.tags) if found.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in page.tags[policy][1]["content"]
    assert places.index("base") < policy
    assert not [found for _, found in page.tags if "src" in found]


def test_markup_in_a_text_stays_text(pipelines):
    nasty = """</script><b title="x">&amp;'--></iframe>"""
    trace = record(pipelines["transformer"], nasty)
    attributes, page = framed(trace.show())
    assert attributes["title"].startswith(f"Regard: {nasty} → ")
    assert json.loads(page.frozen)["trace"]["source"] == nasty
    assert "b" not in [tag for tag, _ in page.tags]


def test_a_given_target_and_edits_are_told(pipelines):
    cut = {"kind": "knock-out", "attention": "dec.0.cross", "head": 1, "by": "mean"}
    given = record(pipelines["transformer"], "zebra", "Z Z AH", edits=[cut])
    _, page = framed(given.show())
    block = json.loads(page.frozen)
    assert block["request"]["target"] == "Z Z AH"
    assert block["request"]["edits"] == [cut]
    assert block["trace"]["edits"][0]["label"] == "head 1 of dec.0.cross set to mean"


def test_save_writes_the_page_alone(pipelines, tmp_path):
    frame = show(record(pipelines["recurrent"], "n"))
    written = frame.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert written == frame.page
    assert [tag for tag, _ in Tags(written).tags][:2] == ["html", "head"]
    assert "iframe" not in [tag for tag, _ in Tags(written).tags]
    with pytest.raises(RegardError, match=r"cannot write .*nowhere.*; give another path"):
        frame.save(tmp_path / "nowhere" / "page.html")


def test_half_precision_is_shown_too(folders):
    pipeline = regard.load(folders["transformer"], device="cpu")
    pipeline.model.to(torch.bfloat16)
    trace = record(pipeline, "zebra", "Z IY")
    _, page = framed(trace.show())
    assert json.loads(page.frozen)["trace"]["output"]["logp"] == pytest.approx(float(trace["out.total"]))


def test_what_cannot_be_shown(pipelines):
    pipeline = pipelines["transformer"]
    with pytest.raises(RegardError, match="height must be at least 1 pixel; got 0"):
        show(record(pipeline, "zebra", "Z"), height=0)
    with pytest.raises(RegardError, match="the target has 257 tokens; the page takes 256 at most: shorten it"):
        show(record(pipeline, "n", " ".join(["Z"] * 257)))


def test_a_frame_says_little_in_a_terminal():
    assert repr(Frame("<html>", 720, "Regard: a → b")) == "Frame(height=720, title='Regard: a → b')"
    assert regard.show is show
