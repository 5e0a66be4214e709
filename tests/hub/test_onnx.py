"""ONNX export: onnxruntime's logits and outputs against the model's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import bundle
from regard.errors import RegardError
from regard.hub import ExportError, OnnxModel, verify_logits, write_onnx
from regard.hub.dense_transformer import DistanceTableBias
from regard.hub.onnx_conversion import convert_to_onnx
from regard.hub.onnx_model import runner_options
from regard.hub.verification import reference_logits
from regard.inference import search_all
from regard.positions import T5
from regard.search import Beam, LengthPenalty
from tests.commands.small import regard as command
from tests.hub.hub_models import FOREIGN, random_bundle

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SMALL = {"encoder_layers": 1, "decoder_layers": 1}
ALIBI = {**SMALL, "position": "alibi"}
RECURRENT = {"kind": "recurrent", "width": 16}
SETTINGS: list[dict[str, Any]] = [  # benchmarks/interchange_export.py has all of them
    {**SMALL, "kv_heads": 1, "window": 3},
    {**SMALL, "position": {"kind": "t5", "buckets": 8, "max_distance": 10}, "norm": "rms",
     "biases": False, "activation": "geglu", "dim": 6, "norm_order": "post"},
    {**SMALL, "position": {"kind": "learned", "max_length": 30}, "score": "additive",
     "embedding_norm": True, "output_bias": True, "embedding_scale": 2.0, "template": FOREIGN},
    {**RECURRENT, "cell": "gru", "attention": "bahdanau", "encoder_layers": 2},
    {**RECURRENT, "cell": "lstm", "attention": "luong", "score": "general", "decoder_layers": 2},
    {**RECURRENT, "cell": "lstm", "attention": "none"},
]  # fmt: skip


def exported(made: bundle.Bundle, folder: Path) -> OnnxModel:
    write_onnx(made, folder, runner_options(made, ("s.json", "t.json")))
    return OnnxModel(folder, made, threads=1)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_logits_and_outputs_are_the_models(settings: dict[str, Any], tmp_path: Path):
    made = random_bundle(**settings)
    model = exported(made, tmp_path)
    draw = np.random.default_rng(3)
    for source_length, target_length in ((1, 1), (2, 7), (9, 3), (14, 11)):
        source = draw.integers(3, len(made.source), source_length).tolist()
        target = draw.integers(3, len(made.target), target_length).tolist()
        ours, theirs = (
            reference_logits(made, source, target),
            model.logits(source, target),
        )
        assert ours.shape == theirs.shape == (target_length + 1, len(made.target))
        np.testing.assert_allclose(theirs, ours, atol=2e-5)
    given = [draw.integers(3, len(made.source), n).tolist() for n in (1, 4, 8, 12)]
    for beam, alpha in ((1, 0.0), (4, 0.0), (3, 1.0)):
        search = Beam(beam, 1, LengthPenalty(alpha))
        expected = search_all(search, made.model, given, max_length=15, template=made.template)
        for ids, result in zip(given, expected, strict=True):
            score, found = model.search(ids, 15, beam=beam, alpha=alpha)[0]
            if beam > 1 and not result.is_close:
                assert found == result.hypotheses[0].ids
                assert score == pytest.approx(result.hypotheses[0].score, abs=1e-4)
    verification = verify_logits(made, model, ["ab c", "gh"])
    assert verification.texts >= 50
    assert verification.largest_difference < 2e-5
    verification.check()


@pytest.fixture(scope="module")
def alibi(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, OnnxModel]:
    """An exported folder and its model: `random_bundle(**ALIBI)`."""
    folder = tmp_path_factory.mktemp("alibi")
    return folder, exported(random_bundle(**ALIBI), folder)


def test_rows_of_a_batch_do_not_see_each_other(alibi: tuple[Path, OnnxModel]):
    runner = alibi[1].runner
    sources = [[3, 4, 5, 6, 7, 2], [5, 2], [4, 3, 2]]
    table = np.zeros((3, 6), np.int64)
    for row, ids in zip(table, sources, strict=True):
        row[: len(ids)] = ids
    lengths = np.array([len(ids) for ids in sources])
    names = [one.name for one in runner.encoder.get_outputs()]
    found = runner.encoder.run(names, {"ids": table, "lengths": lengths})
    state = dict(zip(names, found, strict=True))
    state |= {"lengths": lengths}
    for name in runner.past:
        state[name] = np.zeros((3, 2, 0, 8), np.float32)
    together, _ = runner.step(np.ones(3, np.int64), state)
    for ids, row in zip(sources, together, strict=True):
        np.testing.assert_allclose(runner.start(ids, 1)[0][0], row, atol=1e-5)


def test_a_tabulated_bias_is_the_bias_itself():
    torch.manual_seed(0)
    for causal in (False, True):
        bias = T5(3, buckets=8, max_distance=20, causal=causal)
        with torch.no_grad():
            bias.table.normal_()
        from regard.axes import Site

        queries = torch.zeros(1, 3, 40, 2)
        site, scores = Site.grid(queries, queries), torch.randn(1, 3, 40, 40)
        expected = bias(scores, site)
        assert torch.equal(DistanceTableBias(bias, 3)(scores, site), expected)


def test_an_altered_export_is_not_written(
    alibi: tuple[Path, OnnxModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = random_bundle(**ALIBI)
    monkeypatch.setattr(
        "regard.hub.onnx_conversion.write_onnx",
        lambda _, folder, options: shutil.copytree(alibi[0], folder, dirs_exist_ok=True),
    )
    bundle.save(tmp_path / "model", made)
    regard.export(tmp_path / "model", "onnx", tmp_path / "exported")
    with torch.no_grad():
        made.model.decoder[0].feed_forward.outer.bias[3] += 0.05
    bundle.save(tmp_path / "altered", made)
    with pytest.raises(ExportError, match="differs from the original"):
        regard.export(tmp_path / "altered", "onnx", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["altered", "exported", "model"]


def test_the_exported_runner_needs_no_regard(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "out"
    printed, _ = command(
        capsys, "export", "spelling-recurrent", "--to", "onnx", "--out", str(folder)
    )
    facts = json.loads((folder / "card.json").read_text())["export"]
    assert facts["format"] == "onnx"
    assert facts["largest_difference"] <= 1e-4
    assert f"{facts['texts']} texts: logits differ by at most" in printed
    config = json.loads((folder / "config.json").read_text())
    assert config["verification"]["changed_outputs"] == 0
    assert not [path for path in folder.iterdir() if b"/src/regard" in path.read_bytes()]
    script = (
        "import sys; sys.modules |= dict.fromkeys(('regard', 'torch', 'onnx'), None)\n"
        f"sys.argv = ['run_onnx.py', *sys.argv[1:]]; __file__ = {str(folder / 'run_onnx.py')!r}\n"
        "exec(compile(open(__file__).read(), __file__, 'exec'))"
    )
    words = ["attention", "noise", "quality", "x"]
    pipeline = regard.load("spelling-recurrent", engine="torch")
    for beam, given in ((1, {"args": words}), (4, {"stdin": "\n".join(words) + "\n\n"})):
        run = subprocess.run(
            [sys.executable, "-c", script, *given.get("args", []), "--beam", str(beam)],
            input=given.get("stdin", ""), capture_output=True, text=True, check=True,
        )  # fmt: skip
        expected = [pipeline(word, beam=beam).text for word in words]
        assert run.stdout.splitlines() == expected + ([""] if "stdin" in given else [])


def test_what_it_cannot_export_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = random_bundle(**SMALL)
    made.model.decoder_norm = torch.nn.Tanh()
    with pytest.raises(RegardError, match="decoder_norm is a Tanh, which it does not know"):
        write_onnx(made, tmp_path, {})
    with pytest.raises(RegardError, match="no int8; leave out --int8"):
        convert_to_onnx(random_bundle(), tmp_path, [], True)
    monkeypatch.setattr("regard.hub.onnx_export.find_spec", lambda name: None)
    with pytest.raises(RegardError, match=r'install it with pip install "regard\[onnx\]"'):
        regard.export("spelling", "onnx", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
