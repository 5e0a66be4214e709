"""Metrics against hand-counted edits, jiwer, and sacrebleu's own BLEU and chrF."""

import random
import subprocess
import sys

import pytest
import sacrebleu

from regard.training.metrics import (
    MetricError,
    by_length,
    choose_task,
    error_rates,
    legend,
    measure,
    primary_metric,
    text,
)

PHONES = ["HH AH0 L OW1", "W ER1 L D", "K AE1 T", "D AO1 G Z", "AH0 B AE1 N D AH0 N M AH0 N T"]
SENTENCES = [
    "Two young men are outside near many bushes.",
    "A little girl climbs into her wooden playhouse.",
    "Several people wait for the last train of the evening.",
]
ACTIONS = [
    "I_TURN_LEFT I_JUMP I_TURN_LEFT I_JUMP I_WALK I_WALK",
    "I_WALK I_WALK I_JUMP",
    "I_TURN_LEFT I_JUMP",
] * 4


@pytest.mark.parametrize(
    ("kind", "targets", "task"),
    [
        ("words", PHONES, "phones"),
        ("words", ["b ɔ̃ ʒ u ʁ", "m ɛ ʁ s i"], "phones"),
        ("words", ACTIONS, "tokens"),
        ("words", ["m e d i u m t e r m l e t t e r s"], "symbols"),
        ("words", ["sehr gut", "nicht schlecht"], "tokens"),
        ("words", SENTENCES, "text"),
        ("bpe", SENTENCES, "text"),
        ("characters", SENTENCES, "text"),
        ("characters", ["gegangen", "New York"], "characters"),
        ("bpe", ["Москва", "Санкт-Петербург"], "characters"),
        ("bytes", ["CC(=O)OC1=CC=CC=C1C(=O)O"], "characters"),
        ("characters", ["マイケル", "トーマス"], "characters"),
        ("bpe", ["昨日は友達と一緒に映画を見に行きました。"], "text"),
    ],
)
def test_the_task_follows_from_the_targets(kind, targets, task):
    assert choose_task(kind, targets) == task


def test_metrics_are_named_after_the_task():
    for task, name in (("phones", "phone"), ("characters", "character"), ("tokens", "token")):
        rates = error_rates(task, ["a"], [["b"]])
        assert list(rates) == [f"{name}_error_rate", "sequence_error_rate", "sequence_accuracy"]
    assert legend(["phone_error_rate", "sequence_accuracy"]) == [
        "phone error rate: edits per 100 phones of the reference; lower is better",
        "sequence accuracy: outputs that equal a reference, %; higher is better",
    ]


def test_error_rates_by_hand():
    predictions = ["K AE T", "D AO G Z", "B IY", ""]
    references = [["K AE T", "K AA T S"], ["D AO G"], ["B EH", "B EH IY"], ["AH"]]
    # edits to the nearest: 0, 1 (Z), 1 ("B EH" by substitution, "B EH IY" by insertion: the longer
    # counts), 1
    # lengths of the nearest: 3, 3, 3, 1
    assert error_rates("symbols", predictions, references) == {
        "symbol_error_rate": 100 * 3 / 10,
        "sequence_error_rate": 75.0,
        "sequence_accuracy": 25.0,
    }


def test_the_order_of_variants_does_not_matter():
    variants = ["B EH", "B EH IY", "P IY K S"]
    rates = [error_rates("symbols", ["B IY"], [order]) for order in (variants, variants[::-1])]
    assert (
        rates[0]
        == rates[1]
        == {"symbol_error_rate": 100 / 3, "sequence_error_rate": 100.0, "sequence_accuracy": 0.0}
    )


def test_other_kinds_count_characters():
    # kitten → sitting: three edits over seven letters (Levenshtein's own example)
    assert error_rates("characters", ["kitten"], [["sitting"]])[
        "character_error_rate"
    ] == pytest.approx(300 / 7)
    assert error_rates("symbols", ["a b"], [["a  b"]])["sequence_error_rate"] == 0
    assert error_rates("characters", ["a b"], [["a  b"]])["sequence_error_rate"] == 100


def test_composed_and_decomposed_letters_are_the_same():
    assert error_rates("characters", ["cafe\u0301"], [["caf\u00e9"]]) == {
        "character_error_rate": 0.0,
        "sequence_error_rate": 0.0,
        "sequence_accuracy": 100.0,
    }


def test_an_empty_reference_does_not_divide_by_zero():
    assert error_rates("characters", ["", "x"], [[""], [""]]) == {
        "character_error_rate": 100.0,
        "sequence_error_rate": 50.0,
        "sequence_accuracy": 50.0,
    }


@pytest.mark.parametrize("task", ["symbols", "characters"])
def test_rates_are_those_of_jiwer(task):
    jiwer = pytest.importorskip("jiwer")
    draw = random.Random(3)
    between = " " if task == "symbols" else ""
    lines = [
        [between.join(draw.choices("abcde", k=draw.randint(1, 9))) for _ in range(60)]
        for _ in range(2)
    ]
    rate = jiwer.wer if task == "symbols" else jiwer.cer
    ours = error_rates(task, lines[0], [[right] for right in lines[1]])
    assert ours[f"{task[:-1]}_error_rate"] == pytest.approx(100 * rate(lines[1], lines[0]))
    assert ours["sequence_error_rate"] == pytest.approx(
        100 * sum(a != b for a, b in zip(*lines, strict=True)) / 60
    )


SAID = [
    "Two men are outside near bushes.",
    "A girl climbs into a playhouse.",
    "People wait for the train.",
]


def test_text_is_scored_as_sacrebleu_scores_it():
    ours = text(SAID, [[right] for right in SENTENCES])
    assert ours["bleu"] == pytest.approx(sacrebleu.corpus_bleu(SAID, [SENTENCES]).score)
    assert ours["chrf"] == pytest.approx(sacrebleu.corpus_chrf(SAID, [SENTENCES]).score)
    version = sacrebleu.__version__
    assert (
        ours["bleu_signature"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    )
    assert (
        ours["chrf_signature"] == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    )


def test_several_references_of_unequal_number():
    references = [
        [SENTENCES[0], SAID[0]],
        [SENTENCES[1]],
        [SENTENCES[2], "People wait.", "They wait for the train."],
    ]
    streams = [SENTENCES, [SAID[0], None, "People wait."], [None, None, "They wait for the train."]]
    ours = text(SAID, references)
    assert ours["bleu"] == pytest.approx(sacrebleu.corpus_bleu(SAID, streams).score)
    assert ours["chrf"] == pytest.approx(sacrebleu.corpus_chrf(SAID, streams).score)
    assert ours["bleu"] > text(SAID, [[right] for right in SENTENCES])["bleu"]
    assert "nrefs:var" in ours["bleu_signature"]


def test_scripts_without_spaces_use_the_char_tokenizer():
    assert "tok:char" in text(["我喜欢读书"], [["我很喜欢读书"]])["bleu_signature"]
    assert (
        "tok:none"
        in text(SAID, [[right] for right in SENTENCES], tokenize="none")["bleu_signature"]
    )


def test_tasks_are_measured_by_their_name():
    assert measure("phones", ["a b"], [["a c"]])["phone_error_rate"] == 50
    assert measure("text", SENTENCES, [[right] for right in SENTENCES])["bleu"] == pytest.approx(
        100
    )


def test_the_primary_metric_is_the_finer_one():
    rates = {"sequence_error_rate": 40.0, "phone_error_rate": 10.0, "sequence_accuracy": 60.0}
    assert primary_metric(rates) == ("phone_error_rate", 10.0, False)
    assert primary_metric(rates, "sequence_accuracy") == ("sequence_accuracy", 60.0, True)
    assert primary_metric({"bleu": 0.0, "chrf": 12.5, "bleu_signature": "x"}) == (
        "chrf",
        12.5,
        True,
    )
    with pytest.raises(MetricError, match=r"^there is no metric to select by; choose from loss$"):
        primary_metric({"loss": 1.0})
    with pytest.raises(MetricError, match=r"^there is no metric ter; choose from chrf$"):
        primary_metric({"chrf": 1.0}, "ter")


def test_errors_by_source_length():
    buckets = by_length(
        [2, 4, 5, 9, 30],
        ["a", "b", "c d", "e f", "g h i j"],
        [["a"], ["x"], ["c d"], ["e x"], ["g h i x"]],
        task="symbols",
        edges=(4, 6, 7),
    )
    assert buckets == [
        {
            "least": 0,
            "most": 4,
            "count": 2,
            "symbol_error_rate": 50.0,
            "sequence_error_rate": 50.0,
            "sequence_accuracy": 50.0,
        },
        {
            "least": 5,
            "most": 6,
            "count": 1,
            "symbol_error_rate": 0.0,
            "sequence_error_rate": 0.0,
            "sequence_accuracy": 100.0,
        },
        {
            "least": 8,
            "most": None,
            "count": 2,
            "symbol_error_rate": 100 * 2 / 6,
            "sequence_error_rate": 100.0,
            "sequence_accuracy": 0.0,
        },
    ]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: error_rates("symbols", [], []),
            "0 predictions do not fit 0 references; give one each",
        ),
        (
            lambda: text(["a"], [["a"], ["b"]]),
            "1 predictions do not fit 2 references; give one each",
        ),
        (
            lambda: error_rates("symbols", ["a", "b"], [["a"], []]),
            "reference 1 holds no variant; give at least one",
        ),
        (
            lambda: by_length([1, 2], ["a"], [["a"]], task="symbols"),
            "2 lengths do not fit 1 predictions; give one",
        ),
        (
            lambda: by_length([1], ["a"], [["a"]], task="symbols", edges=(3, 3)),
            r"edges must rise; got \[3, 3\]",
        ),
        (lambda: choose_task("words", []), "no targets to choose a metric by; give some"),
    ],
)
def test_invalid_arguments_are_refused(act, message):
    with pytest.raises(MetricError, match=f"^{message}"):
        act()


def test_metrics_load_their_libraries_only_when_used():
    libraries = ("sacrebleu", "rapidfuzz", "rich")
    script = f"import regard.training.metrics, sys; print({libraries!r} & sys.modules.keys())"
    script = script.replace(f"{libraries!r}", f"set({libraries!r})")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
