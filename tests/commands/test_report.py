"""`regard report`: the contents of the page, which needs nothing but itself."""

import json
import re
import shutil
from html.parser import HTMLParser

from regard.reports.collect import HeldOutRow, count_confusions
from tests.commands.small import arguments, pairs, regard, written


class Page(HTMLParser):
    """Collects tags, addresses and text."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.ids, self.text, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        if tag not in ("meta", "progress"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_confusions_by_hand():
    rows = [
        HeldOutRow("x", "A C", ["A B"]),
        HeldOutRow("y", "A C", ["A B", "Z"]),
        HeldOutRow("z", "A", ["A D"]),
        HeldOutRow("w", "A E", ["A"]),
    ]
    found = count_confusions("phones", rows)
    assert (found[0].expected, found[0].output, found[0].count) == ("B", "C", 2)
    assert {(one.expected, one.output) for one in found[1:]} == {("D", ""), ("", "E")}


def test_report_of_a_run_is_one_complete_page(bundle, capsys):
    out, _ = regard(capsys, "report", bundle.parent)
    path = bundle.parent / "report.html"
    assert out == f"{path}\n"
    source = path.read_text()
    page = Page(source)
    assert page.open == []
    assert page.addresses == []
    assert not re.search(r"https?://|@import|url\(", source)
    assert page.ids == [
        *("baselines", "examples", "mistakes", "errors", "confidence", "training", "data"),
        *("settings", "use", "glossary"),
    ]
    text = " ".join(page.text)
    card = json.loads((bundle / "card.json").read_text())
    accuracy = card["metrics"]["sequence_accuracy"]
    assert f"Of 100 new inputs, this model answers about {accuracy:.0f} entirely correctly" in text
    for words in ("copy the source", "Worst mistakes", "Confused characters", "regard predict"):
        assert words in text
    assert source.count("<svg") >= 3  # alignments


def test_report_of_a_model_without_attention(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv", pairs(80))
    more = ("--steps", "1", "--set", "train.evaluations=1", "--set", "model.attention=none")
    regard(capsys, *arguments(data, tmp_path / "run", *more, family="recurrent"))
    page = Page((tmp_path / "run/report.html").read_text())
    assert "examples" in page.ids
    assert "Where the model looked" not in page.text


def test_report_of_a_bundle_alone(bundle, tmp_path, capsys):
    shutil.copytree(bundle, tmp_path / "shared")
    out, _ = regard(capsys, "report", tmp_path / "shared", "--output", tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert out == f"{tmp_path / 'page.html'}\n"
    assert page.ids == ["baselines", "confidence", "data", "settings", "use", "glossary"]
