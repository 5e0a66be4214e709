"""What is written is true: generated pages are as generated, and the README's blocks run."""

import re
import runpy
from pathlib import Path

import pytest

from regard import bundle
from regard.config import TransformerSettings
from regard.models import build
from regard.text import train_tokenizer

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
USING = [block for block in BLOCKS if "runs/demo/bundle" in block]  # what they print depends on the model
BLOCKS = [block for block in BLOCKS if block not in USING]


def test_the_table_of_parts_is_as_generated():
    page = runpy.run_path(str(ROOT / "docs/parts.py"))["page"]()
    assert (ROOT / "docs/parts.md").read_text() == page, "run: python docs/parts.py"


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_readme_blocks_run_and_say_what_they_print(block: str, capsys: pytest.CaptureFixture[str]):
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.split("\n")
    promised = re.findall(r"print\(.*\)  # (.*)", block)
    assert promised
    assert [line.strip() for line in printed if line] == promised


@pytest.mark.parametrize("block", USING, ids=range(len(USING)))
def test_readme_blocks_that_use_a_model_run(block: str, tmp_path: Path, monkeypatch, capsys):
    words = ["attention", "tension", "noise"]
    sounds = ["AH T EH N SH AH N", "T EH N SH AH N", "N OY Z"]
    source, target = train_tokenizer("characters", words), train_tokenizer("words", sounds)
    settings = TransformerSettings(width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=16)
    card = {"longest": {"source": 9, "target": 7}, "task": "symbols"}
    model = build(settings, len(source), len(target))
    bundle.save(tmp_path / "runs/demo/bundle", bundle.Bundle(model, source, target, settings, card))
    (tmp_path / "words.txt").write_text("\n".join(words))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert all(f"\n{word} " in said for word in words)
    assert "decoder.0.cross_attention" in said
