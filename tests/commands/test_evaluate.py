"""`regard evaluate` and `inspect`: the numbers agree with jiwer, scipy and sacrebleu."""

import json

import jiwer
import numpy as np
import pytest
import sacrebleu
import scipy.stats
from scipy import stats

from regard import bundle as bundles
from regard.loading import load
from regard.pipeline import Pipeline
from regard.quality import measure_predictions
from regard.training import metrics
from regard.training.bootstrap import intervals, percentile_interval, resample
from tests.commands.small import pairs, regard, written

PAIRS = pairs(300, seed=7)


@pytest.fixture(scope="module")
def model(bundle):
    return load(bundle)


@pytest.fixture(scope="module")
def report(bundle, tmp_path_factory):
    """What the command says of 300 pairs, and the answers it wrote."""
    home = tmp_path_factory.mktemp("evaluate")
    capture = pytest.MonkeyPatch()
    printed = []
    capture.setattr("builtins.print", lambda text: printed.append(text))
    try:
        from regard.cli import main

        words = [
            "evaluate",
            bundle,
            written(home / "test.tsv", PAIRS),
            "--json",
            "--output",
            home / "outputs.tsv",
        ]
        with pytest.raises(SystemExit):
            main([str(word) for word in words])
    finally:
        capture.undo()
    head, *rows = [line.split("\t") for line in (home / "outputs.tsv").read_text().splitlines()]
    assert head == ["source", "target", "reference", "edits"]
    return json.loads(printed[0]), rows


def test_error_rates_agree_with_jiwer(report):
    found, rows = report
    assert [(source, right) for source, _, right, _ in rows] == PAIRS
    outputs, right = [row[1] for row in rows], [row[2] for row in rows]
    assert found["sources"] == found["pairs"] == 300
    assert (
        2 < found["metrics"]["character_error_rate"]["value"] < 60
    )  # some are right, some are not
    assert found["metrics"]["character_error_rate"]["value"] == pytest.approx(
        100 * jiwer.cer(right, outputs)
    )
    assert found["metrics"]["sequence_error_rate"]["value"] == pytest.approx(
        100 * jiwer.wer(right, outputs)
    )  # each answer is one word
    assert found["metrics"]["sequence_accuracy"]["value"] == pytest.approx(
        100 - found["metrics"]["sequence_error_rate"]["value"]
    )


def test_predictions_are_those_of_the_model(report, model):
    _, rows = report
    assert [row[1] for row in rows] == [
        str(answer) for answer in model.many(source for source, _ in PAIRS)
    ]


def test_intervals_agree_with_scipy(report):
    found, rows = report
    wrong = np.array([output != right for _, output, right, _ in rows], dtype=float)
    edits = np.array([float(row[3]) for row in rows])
    lengths = np.array([float(len(row[2])) for row in rows])
    options = {"n_resamples": 4_000, "method": "percentile", "random_state": 1}
    wer = stats.bootstrap((wrong,), np.mean, **options).confidence_interval
    ser = stats.bootstrap(
        (edits, lengths),
        lambda e, n, axis=-1: e.sum(axis) / n.sum(axis),
        paired=True,
        vectorized=True,
        **options,
    ).confidence_interval
    for name, theirs in (("sequence_error_rate", wer), ("character_error_rate", ser)):
        ours = found["metrics"][name]
        wide = 100 * (theirs.high - theirs.low)
        assert ours["low"] == pytest.approx(100 * theirs.low, abs=wide / 10)
        assert ours["high"] == pytest.approx(100 * theirs.high, abs=wide / 10)
        assert ours["low"] < ours["value"] < ours["high"]


def test_resampling_by_hand():
    same = resample(np.array([[1.0, 2.0]] * 5), resamples=3)
    assert same.tolist() == [[5.0, 10.0]] * 3
    sums = resample(np.array([[1.0], [0.0]]), resamples=4_000)[:, 0]
    assert set(sums) == {0.0, 1.0, 2.0}  # of two questions with replacement: 1/4, 1/2, 1/4
    assert [np.mean(sums == k) for k in (0, 1, 2)] == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    assert (resample(np.arange(30.0)[:, None]) == resample(np.arange(30.0)[:, None])).all()
    assert percentile_interval(np.arange(1_001.0)) == (25.0, 975.0)


def test_worst_errors_and_length_buckets(report):
    found, rows = report
    wrong = [(s, output, right, int(e)) for s, output, right, e in rows if output != right]
    assert len(found["worst"]) == 10
    edits = [one["edits"] for one in found["worst"]]
    assert edits == sorted((row[3] for row in wrong), reverse=True)[:10]
    assert {
        (one["source"], one["prediction"], one["reference"], one["edits"]) for one in found["worst"]
    } <= set(wrong)
    assert sum(part["count"] for part in found["by_length"]) == 300
    for part in found["by_length"]:
        inside = [row for row in rows if part["least"] <= len(row[0]) <= (part["most"] or 99)]
        assert len(inside) == part["count"]
        assert part["character_error_rate"] == pytest.approx(
            100 * jiwer.cer([row[2] for row in inside], [row[1] for row in inside])
        )


def test_running_text_agrees_with_sacrebleu(model):
    card = {**model.bundle.card, "task": "text"}
    one = model.bundle
    reader = Pipeline(bundles.Bundle(one.model, one.source, one.target, one.settings, card))
    right = [f"the {a} cat sat on the {b} mat today" for a, b in PAIRS[:60]]
    outputs = [
        line.replace("cat", "dog") if i % 3 else line.replace("today", "")
        for i, line in enumerate(right)
    ]
    questions = {source: [line] for (source, _), line in zip(PAIRS, right, strict=False)}
    found = measure_predictions(reader, questions, outputs)
    for name, judge in (("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF())):
        theirs = judge.corpus_score(outputs, [right], n_bootstrap=1_000)
        ours = found["metrics"][name]
        assert ours["value"] == pytest.approx(judge.corpus_score(outputs, [right]).score)
        assert 10 < ours["value"] < 95
        assert (ours["high"] - ours["low"]) / 2 == pytest.approx(theirs._ci, rel=0.15)
        assert (ours["high"] + ours["low"]) / 2 == pytest.approx(
            theirs._mean, abs=0.2 * float(theirs._ci)
        )
        bare = sacrebleu.BLEU() if name == "bleu" else sacrebleu.CHRF()
        bare.corpus_score(outputs, [right])
        assert found["signatures"][name] == str(bare.get_signature())
    assert set(found["by_length"][0]) == {"least", "most", "count", "bleu", "chrf"}


def test_every_reference_counts():
    outputs, right = ["ab", "cd"], [["xy", "ab"], ["cx", "dd"]]
    assert metrics.compare(["abc"], [["xyz", "abd", "q"]], task="characters") == [
        (True, 1, 3, "abd")
    ]
    low, high = intervals("characters", outputs, right)["character_error_rate"]
    assert (low, high) == (0.0, 50.0)  # both draws "ab", or both "cd" with one wrong of two
    perfect = intervals("characters", ["ab", "ab"], [["xy", "ab"]] * 2)
    assert perfect["character_error_rate"] == (0.0, 0.0)


@pytest.mark.parametrize(("wrong", "size"), [(0, 20), (20, 20), (3, 20), (450, 1000)])
def test_intervals_of_shares_are_wilsons(wrong, size):
    """All of a few outputs right does not mean that all others are."""
    outputs = ["x"] * wrong + ["a"] * (size - wrong)
    found = intervals("characters", outputs, [["a"]] * size)
    for name, count in (("sequence_error_rate", wrong), ("sequence_accuracy", size - wrong)):
        expected = scipy.stats.binomtest(count, size).proportion_ci(0.95, "wilson")
        assert found[name] == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-9)


def test_references_of_one_source_count_once(bundle, model, tmp_path, capsys):
    own = str(model("abca"))
    data = written(tmp_path / "test.tsv", [("abca", "wrong"), ("abca", own), ("dd", "dd")])
    found = json.loads(regard(capsys, "evaluate", bundle, data, "--json")[0])
    assert (found["sources"], found["pairs"]) == (2, 3)
    assert [one["source"] for one in found["worst"] if one["source"] == "abca"] == []


def test_report_is_printed_as_tables(bundle, tmp_path, capsys):
    out, err = regard(
        capsys, "evaluate", bundle, written(tmp_path / "test.tsv", PAIRS[:40]), "--beam", "1"
    )
    assert err == ""
    assert out.startswith("40 sources with 40 references, ")
    for words in (
        "character error rate",
        "edits per 100 characters of the reference; lower is better",
        "95 % interval",
        "By source length",
        "Worst errors",
    ):
        assert words in out


def test_inspect_counts_every_parameter_once(bundle, model, capsys):
    found = json.loads(regard(capsys, "inspect", bundle, "--json")[0])
    assert sum(found["parameters"].values()) == sum(p.numel() for p in model.model.parameters())
    assert found["parameters"]["encoder self-attention"] == 4 * (32 * 32 + 32)
    assert found["card"] == bundles.load(bundle).card
    assert found["tokenizers"]["source"] == {"kind": "characters", "size": 7}
    assert found["files"]["weights.safetensors"] == (bundle / "weights.safetensors").stat().st_size
    out, _ = regard(capsys, "inspect", bundle)
    for words in (
        "task: characters",
        "best model: step 90 of 90",
        "command: regard train",
        "torch",
        "encoder self-attention",
    ):
        assert words in out


def test_length_buckets_share_one_tokenization():
    english, chinese = (
        ["the cat sat on the mat today"],
        ["我们今天去公园散步吧朋友", "他昨天在图书馆看书学习"] * 3,
    )
    outputs, right = [*english, *chinese], [[line] for line in [*english, *chinese]]
    assert metrics.bleu_tokenizer(right) == "char"
    parts = metrics.by_length([9] + [3] * len(chinese), outputs, right, task="text", edges=(6,))
    assert metrics.bleu_tokenizer(right[:1]) == "13a"  # alone they would be cut otherwise
    assert all("tok:char" in part["bleu_signature"] for part in parts)
