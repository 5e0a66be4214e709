"""How each data set is scored, by the convention of its papers; published figures; our targets.

A score takes the outputs of the search for each example, best first. Error rates, BLEU and
accuracies are in per cent, except the accuracies of names, which are published as shares.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from quality_sets import Example

from regard.pipeline import Pipeline
from regard.text.tokenizers import nfc
from regard.training import metrics

Outputs = Sequence[Sequence[str]]
Score = Callable[[Outputs, Sequence[Example]], dict[str, Any]]
LOWER = {"wer", "per"}  # metrics of which less is better


def phones(outputs: Outputs, examples: Sequence[Example]) -> dict[str, Any]:
    """WER: first outputs that equal no variant. PER: edits to the nearest variant over its
    length."""
    first, references = [output[0] for output in outputs], [one.references for one in examples]
    found = metrics.error_rates("phones", first, references)
    return {"wer": found["sequence_error_rate"], "per": found["phone_error_rate"]}


def bleu(outputs: Outputs, examples: Sequence[Example], *, tokenize: str) -> dict[str, Any]:
    """Cased sacreBLEU of first outputs; "none" keeps the tokens of the text."""
    first, references = [output[0] for output in outputs], [one.references for one in examples]
    found = metrics.text(first, references, tokenize=tokenize)
    return {"bleu": found["bleu"], "chrf": found["chrf"], "signature": found["bleu_signature"]}


def default_search(
    pipeline: Pipeline, tests: Mapping[str, Sequence[Example]], task: str, metric: str
) -> float:
    """A metric of the default search, as a mean over test sets."""
    values = []
    for examples in tests.values():
        outputs = [answer.text for answer in pipeline.many([one.source for one in examples])]
        found = metrics.measure(task, outputs, [one.references for one in examples])
        values.append(float(found[metric]))
    return statistics.mean(values)


def among(
    outputs: Outputs, examples: Sequence[Example], *, counts: Sequence[int] = (1, 3)
) -> dict[str, Any]:
    """The share of examples with a correct output among the first one, the first three."""
    shares = {}
    for count in counts:
        pairs = zip(outputs, examples, strict=True)
        right = [_correct(output[:count], example) for output, example in pairs]
        shares[f"{count}-best"] = statistics.fmean(right)
    return shares


def exact(outputs: Outputs, examples: Sequence[Example]) -> dict[str, Any]:
    """Exact match over all examples and in each group."""
    share = among(outputs, examples, counts=(1,))["1-best"]
    return {"exact": 100 * share, "groups": languages(outputs, examples)["groups"]}


def languages(outputs: Outputs, examples: Sequence[Example]) -> dict[str, Any]:
    """Accuracy of first outputs: the unweighted mean over groups, and each group."""
    groups: dict[str, list[bool]] = {}
    for output, example in zip(outputs, examples, strict=True):
        groups.setdefault(example.group, []).append(_correct(output[:1], example))
    each = {group: 100 * statistics.fmean(right) for group, right in groups.items()}
    return {"accuracy": statistics.fmean(each.values()), "groups": each}


def _correct(outputs: Sequence[str], example: Example) -> bool:
    return not {nfc(one) for one in example.references}.isdisjoint(map(nfc, outputs))


@dataclass(frozen=True)
class Published:
    """Published figures by test set and metric, with their source."""

    system: str
    figures: dict[str, float]
    source: str


@dataclass(frozen=True)
class Target:
    """A figure to reach, `of` one "model" (mean of the seeds), a "distilled" one or the
    "ensemble"."""

    figure: str
    value: float
    of: str = "model"


@dataclass(frozen=True)
class Convention:
    """How a set is decoded and scored. Settings are chosen by the figure `chosen` on dev."""

    score: Score
    chosen: str
    recipe: str
    beam: int = 5
    best: int = 1
    length_penalty: float = 0.0
    published: list[Published] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)


YOLCHUYEVA = (
    "Yolchuyeva, Németh & Gyires-Tóth 2019, Transformer based Grapheme-to-Phoneme Conversion"
)
TINY = (
    "Wu et al. 2021, Good for Misconceived Reasons (multimodal translation): its text-only models"
)
SHARED_TASK = "Cotterell et al. 2017, CoNLL–SIGMORPHON shared task, sub-task 1, high"
FURRER = "Furrer et al. 2020, Compositional Generalization in Semantic Parsing"
DEVIL = "Csordás, Irie & Schmidhuber 2021, The Devil is in the Detail"
TEXT: dict[str, Any] = {"chosen": "bleu", "length_penalty": 1.0}
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
            Published(
                "ensemble of 5 attention models",
                {"test wer": 20.24, "test per": 4.69},
                "Toshniwal & Livescu 2016",
            ),
            Published(
                "distilled, extra words", {"test wer": 19.88, "test per": 4.6}, "Sun et al. 2019"
            ),
        ],
        targets=[
            Target("test wer", 20.6),
            Target("test per", 4.9),
            Target("test wer", 19.9, "ensemble"),
        ],
    ),
    "cmudict-short": Convention(phones, "wer", "cmudict"),
    "multi30k-en-de-tok": Convention(
        recipe="multi30k-en-de-tok",
        **TOKENISED,
        published=[
            Published(
                "Transformer-Tiny",
                {"2016 bleu": 41.02, "2017 bleu": 33.36, "coco bleu": 29.88},
                TINY,
            ),
            Published("Transformer-Base", {"2016 bleu": 38.33}, TINY),
        ],
        targets=[Target("2016 bleu", 41.5), Target("2017 bleu", 33.8), Target("coco bleu", 30.0)],
    ),
    "multi30k-en-de-raw": Convention(
        recipe="multi30k-en-de-raw",
        **PLAIN,
        published=[
            Published(
                "OPUS-MT, the best", {"2016 bleu": 36.3, "2017 bleu": 35.8}, "OPUS-MT leaderboard"
            )
        ],
        targets=[Target("2016 bleu", 39.5), Target("2017 bleu", 34.5)],
    ),
    "tatoeba-en-de": Convention(
        recipe="tatoeba-en-de",
        **PLAIN,
        published=[
            Published(
                "OPUS-MT, 100 M+ pairs", {"test bleu": 46.7}, "Tiedemann 2020, Tatoeba Challenge"
            )
        ],
        targets=[Target("test bleu", 42.0)],
    ),
    "names-ru": Convention(
        among,
        "1-best",
        "names-ru",
        best=3,
        published=[
            Published(
                "a published run",
                {"test 1-best": 0.60, "test 3-best": 0.75},
                "Merhav & Ash 2018, its README",
            )
        ],
        targets=[Target("test 1-best", 0.65), Target("test 3-best", 0.80)],
    ),
    "scan-length": Convention(
        recipe="scan-length",
        **SCAN,
        published=[Published("plain Transformer", {"test exact": 0.0}, FURRER)],
    ),
    "scan-length-26": Convention(
        recipe="scan-length",
        **SCAN,
        published=[Published("relative positions", {"test exact": 100.0}, DEVIL)],
    ),
    "scan-around-right": Convention(
        recipe="scan-around-right",
        **SCAN,
        published=[Published("plain Transformer", {"test exact": 53.3}, FURRER)],
    ),
    "scan-length-choice": Convention(recipe="scan-length", **SCAN),
    "scan-around-right-choice": Convention(recipe="scan-around-right", **SCAN),
    "inflection-2017": Convention(
        languages,
        "accuracy",
        "inflection-2017",
        published=[Published("the shared task's best", {"test accuracy": 95.32}, SHARED_TASK)],
        targets=[Target("test accuracy", 95.3)],
    ),
}


def better(figure: str) -> int:
    """1 if more of a figure is better, −1 if less, by its metric: "test wer" → −1."""
    return -1 if figure.split()[-1] in LOWER else 1


def limit(figure: str) -> float:
    """The best possible value of a figure."""
    if figure.split()[-1] in LOWER:
        return 0.0
    return 1.0 if figure.endswith("-best") else 100.0
