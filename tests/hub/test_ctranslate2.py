"""CTranslate2 export: the library's own scores and outputs against the model's."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import bundle
from regard.errors import RegardError
from regard.hub import CTranslate2Model, ExportError, Verification, verify, write_ctranslate2
from regard.hub.ctranslate2_export import cannot_export
from regard.hub.folding import LONGEST, distance_table
from regard.inference import search_all
from regard.models.families import describe
from regard.native import NativeOptions
from regard.search import Beam, Greedy, LengthPenalty, constraints
from regard.teacher_forcing import target_logps
from tests.commands.small import regard as command
from tests.hub.hub_models import FOREIGN, random_bundle

needs_ctranslate2 = pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed"
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"position": {"kind": "rotary", "fraction": 0.5, "base": 500.0}},
    {"position": {"kind": "rotary", "pairs": "neighbours"}, "kv_heads": 1},
    {"position": {"kind": "rotary", "scaling": "linear", "factor": 3.0}},
    {"position": {"kind": "rotary", "scaling": "ntk", "factor": 3.0}},
    {"position": "rotary", "window": 3},
    {"position": "sinusoidal", "norm_order": "post", "activation": "relu"},
    {"position": {"kind": "sinusoidal", "order": "halves", "base": 100.0}, "norm": "rms"},
    {"position": {"kind": "learned", "max_length": 40}, "activation": "gelu"},
    {"position": "none", "tie_embeddings": "none"},
    {"position": "none", "window": 2, "kv_heads": 1},
    {"position": "alibi", "norm": "rms", "norm_order": "post"},
    {"position": "alibi", "heads": 4, "kv_heads": 2, "window": 4},
    {"position": {"kind": "distance", "max_distance": 3}, "score": "dot"},
    {"position": {"kind": "t5", "buckets": 8, "max_distance": 10}},
    {"position": {"kind": "shaw", "max_distance": 4}},
    {"position": {"kind": "shaw", "max_distance": 4}, "score": "dot", "kv_heads": 1},
    {"position": "rotary", "score": "dot"},
    {"position": "t5", "score": "general", "heads": 4, "kv_heads": 2},
    {"position": "sinusoidal", "score": "general", "width": 24, "heads": 3},
    {"activation": "gelu-tanh", "embedding_scale": 0.5},
    {"activation": "silu", "embedding_norm": True, "norm": "rms", "norm_eps": 0.1},
    {"activation": "geglu", "dim": 6, "kv_heads": 1},
    {"output_bias": True, "biases": False, "position": "sinusoidal"},
    {"dim": 20, "position": {"kind": "shaw", "max_distance": 4}, "norm_eps": 0.01},
    {"dim": 5, "position": "alibi", "score": "general", "tie_embeddings": "none"},
    {  # as BART
        "position": {"kind": "learned", "max_length": 40},
        "norm_order": "post",
        "activation": "gelu",
        "embedding_norm": True,
        "embedding_scale": 1.0,
        "output_bias": True,
    },
    {  # as T5 1.1
        "position": {"kind": "t5", "buckets": 8, "max_distance": 12},
        "norm": "rms",
        "norm_eps": 1e-3,
        "activation": "geglu",
        "biases": False,
        "dim": 5,
        "embedding_scale": 1.0,
        "tie_embeddings": "none",
    },
]


def sources(made: bundle.Bundle, count: int = 30) -> list[list[int]]:
    chance = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 13, (count,), generator=chance).tolist()
    size = len(made.source)
    return [torch.randint(3, size, (n,), generator=chance).tolist() for n in lengths]


@needs_ctranslate2
def test_special_tokens_of_other_projects():
    made = random_bundle(template=FOREIGN)
    exported, given = CTranslate2Model.from_bundle(made), sources(made)
    expected = search_all(Greedy(), made.model, given, max_length=15, template=FOREIGN)
    found = exported.search(given, [15] * len(given), threads=1)
    for one, other in zip(found, expected, strict=True):
        assert one[0].ids == other.hypotheses[0].ids or other.is_close
        assert not {1, 4, 5} & {*one[0].ids}
    targets = [result.hypotheses[0].ids for result in expected]
    pairs = [pair for pair in zip(given, targets, strict=True) if pair[1]]
    ours = target_logps(made.model, *map(list, zip(*pairs, strict=True)), FOREIGN)
    for one, other in zip(exported.score(pairs), ours, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@needs_ctranslate2
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_log_probabilities_and_outputs_are_the_models(settings: dict[str, Any]):
    made = random_bundle(**settings)
    exported, given = CTranslate2Model.from_bundle(made), sources(made)
    chance = torch.Generator().manual_seed(4)
    targets = [
        torch.randint(3, len(made.target), (1 + i % 9,), generator=chance).tolist()
        for i in range(len(given))
    ]
    scores = exported.score(list(zip(given, targets, strict=True)))
    for ours, theirs in zip(target_logps(made.model, given, targets), scores, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=5e-5)
    expected = search_all(Greedy(), made.model, given, max_length=15)
    found = exported.search(given, [15] * len(given), threads=1)
    for one, other in zip(found, expected, strict=True):
        assert one[0].ids == other.hypotheses[0].ids or other.is_close
    texts = ["ab c", "gh"]
    verification = verify(made, exported, texts)
    assert verification.texts >= 50
    assert verification.largest_difference < 2e-5
    verification.check()


@needs_ctranslate2
def test_options_of_search():
    made = random_bundle(position="alibi")
    exported, given = CTranslate2Model.from_bundle(made), sources(made)
    cases = [
        ({"min_length": 4}, constraints.min_length(4)),
        ({"max_length": 2}, constraints.max_length(2)),
        ({"prefix": [5, 4]}, constraints.prefix([5, 4])),
        ({"ban": [[4], [5, 6]]}, constraints.ban([[4], [5, 6]])),
        ({"no_repeat_ngram": 1}, constraints.no_repeat_ngram(1)),
    ]
    for options, constraint in cases:
        found = exported.search(given, [15] * len(given), NativeOptions(**options))
        expected = search_all(Greedy((constraint,)), made.model, given, max_length=15)
        for one, other in zip(found, expected, strict=True):
            if not other.is_close:
                assert one[0].ids == other.hypotheses[0].ids, options
                np.testing.assert_allclose(one[0].logps, other.hypotheses[0].logps, atol=1e-4)


WORDS = [
    "attention",
    "tension",
    "noise",
    "quality",
    "machine",
    "spelling",
    "regard",
    "model",
    "letters",
    "beam",
]


@needs_ctranslate2
def test_beam_search_scores_are_those_of_regard():
    made = regard.load("spelling").bundle
    exported = CTranslate2Model.from_bundle(made)
    given = [made.source.encode(word) for word in WORDS]
    options = NativeOptions(beam=4, n_best=2, length_penalty=1.0)
    found = exported.search(given, [30] * len(given), options)
    search = Beam(4, 2, LengthPenalty(1.0))
    expected = search_all(search, made.model, given, max_length=30)
    same = [
        (one[0], other.hypotheses[0])
        for one, other in zip(found, expected, strict=True)
        if one[0].ids == other.hypotheses[0].ids
    ]
    assert len(same) >= 8  # CTranslate2 stops earlier
    for one, other in same:
        assert one.score == pytest.approx(other.score, abs=1e-4)
    assert all(len(some) == 2 for some in found)


@needs_ctranslate2
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"required": [[4]], "beam": 2}, "no required words"),
        ({"sample": True}, "random numbers cannot be seeded"),
        ({"gnmt": True}, "no GNMT length penalty"),
    ],
)
def test_searches_it_lacks_are_refused(options: dict[str, Any], message: str):
    exported = CTranslate2Model.from_bundle(random_bundle())
    with pytest.raises(RegardError, match=message):
        exported.search([[3]], [5], NativeOptions(**options))


@needs_ctranslate2
def test_the_engine_runs_on_request_and_refuses_by_name():
    pipeline, torch_pipeline = (
        regard.load("spelling", engine=engine) for engine in ("ctranslate2", "torch")
    )
    assert pipeline.engine == "ctranslate2"
    assert regard.load("spelling").engine != "ctranslate2"
    for word in WORDS:
        ours, theirs = (one(word, beam=1) for one in (pipeline, torch_pipeline))
        assert ours.ids == theirs.ids
        np.testing.assert_allclose(ours.logps, theirs.logps, atol=1e-4)
    for call, reason in (
        (lambda: pipeline("at", require=["AH"]), "it has no required words"),
        (lambda: list(pipeline.stream("at")), "it does not stream"),
        (lambda: regard.load("spelling-recurrent", engine="ctranslate2"), "model.kind must be"),
    ):
        with pytest.raises(RegardError, match=f"engine 'ctranslate2' cannot run this: {reason}"):
            call()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"score": "cosine"}, "it has no model.score = 'cosine'"),
        ({"score": "additive"}, "it has no model.score = 'additive'"),
        ({"normaliser": {"kind": "entmax", "alpha": 1.3}}, "it has no model.normaliser = 'entmax'"),
        ({"score": "general"}, "cannot be folded with model.position = 'rotary'"),
        ({"window": 3, "position": "learned"}, "no model.window with model.position = 'learned'"),
    ],
)
def test_models_it_cannot_run_are_refused(settings: dict[str, Any], reason: str):
    assert reason in str(cannot_export(random_bundle(**settings).model))


def test_recurrent_models_are_refused():
    made = regard.load("spelling-recurrent").bundle
    assert cannot_export(made.model) == "model.kind must be transformer, not recurrent"


def test_a_distance_table_by_hand():
    made = random_bundle(position={"kind": "distance", "max_distance": 2}, window=4)
    attention = describe(made.model.encoder[0]).self_attention
    table = distance_table(attention, two_sided=True)
    assert table.shape == (4 * LONGEST, 2)
    learned = attention.parts.bias.table.detach().numpy() / np.sqrt(8)
    before, after = table[: 2 * LONGEST], table[2 * LONGEST :]
    np.testing.assert_allclose(before[:3], learned[:, [2, 1, 0]].T, rtol=1e-6)
    np.testing.assert_allclose(after[1:3], learned[:, [3, 4]].T, rtol=1e-6)
    np.testing.assert_allclose(before[3], learned[:, 0], rtol=1e-6)
    assert (before[4:] == -1e9).all()
    assert (after[4:] == -1e9).all()


@needs_ctranslate2
def test_an_int8_export_leaves_the_model_as_it_was(tmp_path):
    made = random_bundle()
    before = {name: weight.clone() for name, weight in made.model.state_dict().items()}
    write_ctranslate2(made, tmp_path, int8=True)
    for name, weight in made.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_the_threads_are_those_of_the_native_engine(monkeypatch: pytest.MonkeyPatch):
    import ctranslate2

    made = []
    translator = ctranslate2.Translator
    monkeypatch.setattr(
        ctranslate2,
        "Translator",
        lambda *arguments, **options: (
            made.append(options["intra_threads"]) or translator(*arguments, **options)
        ),
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    exported = CTranslate2Model.from_bundle(random_bundle())
    exported.search([[3, 4]], [5])
    exported.search([[3, 4]], [5], threads=2)
    assert made == [3, 2]


def test_the_threads_of_torch_stay_as_they_are():
    before = torch.get_num_threads()
    exported = CTranslate2Model.from_bundle(random_bundle())
    exported.search([[3, 4]], [5], threads=before + 1)
    assert torch.get_num_threads() == before


def test_a_failed_verification_names_the_difference():
    Verification(50, 1e-5, 0, 3).check()
    with pytest.raises(ExportError, match=r"by up to 2.0e-03 \(allowed: 1e-04\) and 0 of 50 outp"):
        Verification(50, 2e-3, 0, 0).check()
    for broken in (Verification(50, 0.0, 1, 0), Verification(50, float("nan"), 0, 0)):
        with pytest.raises(ExportError, match="nothing was written"):
            broken.check()


@needs_ctranslate2
def test_an_altered_export_is_not_written(tmp_path, monkeypatch):
    made = random_bundle()
    bundle.save(tmp_path / "model", made)
    other = random_bundle()
    with torch.no_grad():
        other.model.decoder[1].feed_forward.outer.bias[3] += 0.05
    monkeypatch.setattr(
        "regard.hub.ctranslate2_conversion.write_ctranslate2",
        lambda _, folder, **options: write_ctranslate2(other, folder, **options),
    )
    with pytest.raises(ExportError, match="differs from the original"):
        regard.export(tmp_path / "model", "ctranslate2", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@needs_ctranslate2
@pytest.mark.parametrize("int8", [False, True])
def test_the_command_exports_an_included_model(tmp_path, monkeypatch, capsys, int8: bool):
    monkeypatch.chdir(tmp_path)
    words = ["export", "spelling", "--to", "ctranslate2", *(["--int8"] if int8 else [])]
    printed, _ = command(capsys, *words)
    folder = Path("spelling-ctranslate2")
    facts = json.loads((folder / "card.json").read_text())["export"]
    assert facts["largest_difference"] <= 1e-4
    assert facts["precision"] == ("int8" if int8 else "float32")
    assert f"{facts['texts']} texts: log-probabilities differ by at most" in printed
    assert ("int8 changes" in printed) == int8
    assert facts.get("int8_changed_outputs", 0) < facts["texts"] / 2  # most texts are random
    import ctranslate2
    from tokenizers import Tokenizer

    translator = ctranslate2.Translator(str(folder))
    tokenizer = Tokenizer.from_file(str(folder / "source.tokenizer.json"))
    tokens = tokenizer.encode("attention", add_special_tokens=False).tokens
    found = translator.translate_batch([tokens], beam_size=1)[0].hypotheses[0]
    if not int8:
        assert " ".join(found) == regard.load("spelling")("attention", beam=1).text
    _, error = command(capsys, *words, code=2)
    assert error == "regard: 'spelling-ctranslate2' exists; remove it, or choose another --out\n"


def test_unknown_formats_are_refused(capsys):
    _, error = command(capsys, "export", "spelling", "--to", "ctranslate", code=2)
    assert error == "regard: unknown export format 'ctranslate'; did you mean 'ctranslate2'?\n"


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.hub.ctranslate2_export.find_spec", lambda name: None)
    with pytest.raises(RegardError, match=r'install it with pip install "regard\[ctranslate2\]"'):
        regard.export("spelling", "ctranslate2", tmp_path / "out")
