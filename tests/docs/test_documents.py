"""Generated pages are up to date, and the Python blocks of the README and the docs run as shown."""

import re
import runpy
from pathlib import Path

import pytest

from regard import bundle
from regard.config import TransformerSettings
from regard.models import build
from regard.text import train_tokenizer

ROOT = Path(__file__).parent.parent.parent
SERVING = ROOT / "docs/serving.md"  # its blocks need a server: tests/serve/test_serving_docs.py
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {SERVING})]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
TRAINED = "runs/demo/bundle"  # the output of these blocks depends on a trained model
PRINTING = [param for param in BLOCKS if TRAINED not in param.values[0]]
LOADING = [param for param in BLOCKS if TRAINED in param.values[0]]


@pytest.mark.parametrize("name", ["parts", "settings"])
def test_generated_page_is_up_to_date(name: str):
    page = runpy.run_path(str(ROOT / f"docs/{name}.py"))["page"]()
    assert (ROOT / f"docs/{name}.md").read_text() == page, f"run: python docs/{name}.py"


def test_blocks_are_found():
    pages = {param.id.rsplit("-", 1)[0] for param in BLOCKS}
    assert {"README", "guide"} <= pages
    assert LOADING


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_links_between_pages_exist():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        missing = [target for target in targets if not (page.parent / target).exists()]
        assert missing == [], f"{page.name} links to files that do not exist"


@pytest.mark.parametrize("block", PRINTING)
def test_block_prints_what_it_shows(block: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {})
    printed = [line.strip() for line in capsys.readouterr().out.split("\n") if line]
    shown = re.findall(r"print\(.*\)  # (.*)", block)
    assert shown
    assert printed == shown


@pytest.mark.parametrize("block", LOADING)
def test_block_with_a_trained_model_runs(block: str, tmp_path: Path, monkeypatch, capsys):
    words = ["attention", "tension", "noise"]
    sounds = ["AH T EH N SH AH N", "T EH N SH AH N", "N OY Z"]
    source, target = train_tokenizer("characters", words), train_tokenizer("words", sounds)
    sizes = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 16}
    settings = TransformerSettings(**sizes)
    card = {"longest": {"source": 9, "target": 7}, "task": "symbols"}
    model = build(settings, len(source), len(target))
    bundle.save(tmp_path / TRAINED, bundle.Bundle(model, source, target, settings, card))
    (tmp_path / "words.txt").write_text("\n".join(words))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {})
    printed = capsys.readouterr().out
    assert all(f"\n{word} " in printed for word in words)
    assert "decoder.0.cross_attention" in printed
