"""How each data set is scored, by the convention of its papers; what was published; and what is asked of ours.

A score takes, for each question, the answers of the search, the best first. Error rates, BLEU and accuracies are in per
cent, but the accuracies of names, which are published as shares.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from quality_sets import Question

from regard.text.tokenizers import nfc
from regard.train import metrics

Answers = Sequence[Sequence[str]]
Score = Callable[[Answers, Sequence[Question]], dict[str, Any]]
LOWER = {"wer", "per"}  # of these less is better


def phones(answers: Answers, questions: Sequence[Question]) -> dict[str, Any]:
    """WER: first answers that equal no variant. PER: edits to the nearest variant over its length, summed."""
    found = metrics.symbols([said[0] for said in answers], [question.right for question in questions], kind="words")
    return {"wer": found["wer"], "per": found["ser"]}


def bleu(answers: Answers, questions: Sequence[Question], *, tokenize: str) -> dict[str, Any]:
    """sacreBLEU, cased, of first answers; "none" takes the text's own tokens as they are."""
    said, right = [said[0] for said in answers], [question.right for question in questions]
    found = metrics.text(said, right, tokenize=tokenize)
    return {"bleu": found["bleu"], "chrf": found["chrf"], "signature": found["bleu_signature"]}


def among(answers: Answers, questions: Sequence[Question], *, counts: Sequence[int] = (1, 3)) -> dict[str, Any]:
    """The share of questions with a right answer among the first one, the first three."""
    shares = {}
    for count in counts:
        right = [_right(said[:count], question) for said, question in zip(answers, questions, strict=True)]
        shares[f"{count}-best"] = statistics.fmean(right)
    return shares


def exact(answers: Answers, questions: Sequence[Question]) -> dict[str, Any]:
    """Answers that are right as a whole, over all questions and in each group."""
    share = among(answers, questions, counts=(1,))["1-best"]
    return {"exact": 100 * share, "groups": languages(answers, questions)["groups"]}


def languages(answers: Answers, questions: Sequence[Question]) -> dict[str, Any]:
    """The mean over groups of the share of right first answers, whatever the groups' sizes; and each group's."""
    groups: dict[str, list[bool]] = {}
    for said, question in zip(answers, questions, strict=True):
        groups.setdefault(question.group, []).append(_right(said[:1], question))
    each = {group: 100 * statistics.fmean(right) for group, right in groups.items()}
    return {"accuracy": statistics.fmean(each.values()), "groups": each}


def _right(said: Sequence[str], question: Question) -> bool:
    return not {nfc(right) for right in question.right}.isdisjoint(map(nfc, said))


@dataclass(frozen=True)
class Published:
    """Somebody's figures, by test set and metric, and where they stand."""

    system: str
    figures: dict[str, float]
    source: str


@dataclass(frozen=True)
class Asked:
    """A figure to reach: `of` one model (the mean of the seeds), one that was "distilled", or the "ensemble"."""

    figure: str
    value: float
    of: str = "model"


@dataclass(frozen=True)
class Convention:
    """How a set is answered and scored. `chosen` is the figure of the dev part that settings are chosen by."""

    score: Score
    chosen: str
    recipe: str
    beam: int = 5
    best: int = 1
    length: float = 0.0
    published: list[Published] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)


YOLCHUYEVA = "Yolchuyeva, Németh & Gyires-Tóth 2019, Transformer based Grapheme-to-Phoneme Conversion"
TINY = "Wu et al. 2021, Good for Misconceived Reasons (multimodal translation): its text-only models"
SHARED_TASK = "Cotterell et al. 2017, CoNLL–SIGMORPHON shared task, sub-task 1, high"
FURRER = "Furrer et al. 2020, Compositional Generalization in Semantic Parsing"
DEVIL = "Csordás, Irie & Schmidhuber 2021, The Devil is in the Detail"
TEXT: dict[str, Any] = {"chosen": "bleu", "length": 1.0}
TOKENISED: dict[str, Any] = {"score": partial(bleu, tokenize="none"), **TEXT}
PLAIN: dict[str, Any] = {"score": partial(bleu, tokenize="13a"), **TEXT}
SCAN: dict[str, Any] = {"score": exact, "chosen": "exact", "beam": 1}

CONVENTIONS: dict[str, Convention] = {
    "cmudict": Convention(
        phones,
        "wer",
        "cmudict",
        published=[
            Published("joint WFST (Phonetisaurus)", {"test wer": 24.4}, "g2p-seq2seq's README"),
            Published("Transformer 4+4", {"test wer": 22.1, "test per": 5.23}, YOLCHUYEVA),
            Published("Transformer, 3 × 256", {"test wer": 20.6}, "g2p-seq2seq's README"),
            Published("5 attention models together", {"test wer": 20.24, "test per": 4.69}, "Toshniwal & Livescu 2016"),
            Published("distilled, extra words", {"test wer": 19.88, "test per": 4.6}, "Sun et al. 2019"),
        ],
        asked=[Asked("test wer", 20.6), Asked("test per", 4.9), Asked("test wer", 19.9, "ensemble")],
    ),
    "cmudict-short": Convention(phones, "wer", "cmudict"),
    "multi30k-en-de-tok": Convention(
        recipe="multi30k-en-de-tok",
        **TOKENISED,
        published=[
            Published("Transformer-Tiny", {"2016 bleu": 41.02, "2017 bleu": 33.36, "coco bleu": 29.88}, TINY),
            Published("Transformer-Base", {"2016 bleu": 38.33}, TINY),
        ],
        asked=[Asked("2016 bleu", 41.5), Asked("2017 bleu", 33.8), Asked("coco bleu", 30.0)],
    ),
    "multi30k-en-de-raw": Convention(
        recipe="multi30k-en-de-raw",
        **PLAIN,
        published=[Published("OPUS-MT, the best", {"2016 bleu": 36.3, "2017 bleu": 35.8}, "OPUS-MT leaderboard")],
        asked=[Asked("2016 bleu", 39.5), Asked("2017 bleu", 34.5)],
    ),
    "tatoeba-en-de": Convention(
        recipe="tatoeba-en-de",
        **PLAIN,
        published=[Published("OPUS-MT, 100 M+ pairs", {"test bleu": 46.7}, "Tiedemann 2020, Tatoeba Challenge")],
        asked=[Asked("test bleu", 42.0)],
    ),
    "names-ru": Convention(
        among,
        "1-best",
        "names-ru",
        best=3,
        published=[
            Published("a published run", {"test 1-best": 0.60, "test 3-best": 0.75}, "Merhav & Ash 2018, its README")
        ],
        asked=[Asked("test 1-best", 0.65), Asked("test 3-best", 0.80)],
    ),
    "scan-length": Convention(
        recipe="scan-length", **SCAN, published=[Published("plain Transformer", {"test exact": 0.0}, FURRER)]
    ),
    "scan-length-26": Convention(
        recipe="scan-length", **SCAN, published=[Published("relative positions", {"test exact": 100.0}, DEVIL)]
    ),
    "scan-around-right": Convention(
        recipe="scan-around-right", **SCAN, published=[Published("plain Transformer", {"test exact": 53.3}, FURRER)]
    ),
    "scan-length-choice": Convention(recipe="scan-length", **SCAN),
    "scan-around-right-choice": Convention(recipe="scan-around-right", **SCAN),
    "inflection-2017": Convention(
        languages,
        "accuracy",
        "inflection-2017",
        published=[Published("the shared task's best", {"test accuracy": 95.32}, SHARED_TASK)],
        asked=[Asked("test accuracy", 95.3)],
    ),
}


def better(figure: str) -> int:
    """Whether more (1) or less (−1) of a figure is better, by its metric: "test wer" → −1."""
    return -1 if figure.split()[-1] in LOWER else 1


def limit(figure: str) -> float:
    """The best a figure can be."""
    if figure.split()[-1] in LOWER:
        return 0.0
    return 1.0 if figure.endswith("-best") else 100.0
