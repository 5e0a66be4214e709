"""Metrics chosen by the task: error rates for symbol sequences, BLEU and chrF for running text.

Predictions are texts; references are lists of texts, for a source may have several right answers (variants).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.text.tokenizer_choice import SideStats
from regard.text.tokenizers import nfc

RUNNING = 5  # words to a line from which targets count as sentences
UNSPACED = 12  # characters, where the writing puts no spaces


class MetricError(RegardError):
    """Predictions and references that cannot be compared."""


def choose(kind: str, targets: Iterable[str]) -> str:
    """'symbols' or 'text', by the target tokeniser's kind and a sample of targets.

    Words of a closed set (phones, tags, actions) are symbols however many there are; other targets are symbols when
    short, such as names and word forms, and text when they are sentences: many words or, without spaces, characters.
    """
    side = SideStats([nfc(line) for line in targets], None)
    if not side.lines:
        raise MetricError("no targets to choose a metric by; give a sample of them")
    if kind == "words" and _closed(side):
        return "symbols"
    running = side.symbols_per_line >= RUNNING or (side.unspaced and side.characters_per_line > UNSPACED)
    return "text" if running else "symbols"


def measure(
    task: str,
    kind: str,
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """The metrics of a task that `choose` named, with the target tokeniser's kind; `tokenize` is for text."""
    if task == "symbols":
        return symbols(predictions, references, kind=kind)
    return text(predictions, references, tokenize=tokenize)


def symbols(predictions: Sequence[str], references: Sequence[Sequence[str]], *, kind: str) -> dict[str, float]:
    """Error rates in per cent. With a `words` tokeniser symbols stand between spaces; otherwise they are characters.

    wer: predictions that equal none of their variants (in spelling → sound, the word error rate); exact: the others.
    ser: edits to the nearest variant, summed, over the summed lengths of those variants (for phones, the PER).
    Of variants equally near the longest counts, so that their order does not matter.
    """
    found = compared(predictions, references, kind=kind)
    wrong, edits, length = (sum(int(one[i]) for one in found) for i in range(3))
    wer = 100 * wrong / len(found)
    return {"ser": 100 * edits / max(1, length), "wer": wer, "exact": 100 - wer}


class Compared(NamedTuple):
    """A prediction beside its nearest variant: whether it is wrong, by how many edits, of how many symbols."""

    wrong: bool
    edits: int
    length: int
    right: str


def compared(predictions: Sequence[str], references: Sequence[Sequence[str]], *, kind: str) -> list[Compared]:
    """Each prediction with the variant it comes nearest to."""
    from rapidfuzz.distance import Levenshtein

    _fit(predictions, references)
    found = []
    for prediction, variants in zip(predictions, references, strict=True):
        said, cuts = _cut(prediction, kind), [_cut(variant, kind) for variant in variants]
        edits, negative, place = min((Levenshtein.distance(said, cut), -len(cut), i) for i, cut in enumerate(cuts))
        found.append(Compared(edits > 0, edits, -negative, variants[place]))
    return found


def text(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str | None = None
) -> dict[str, float | str]:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) by sacrebleu (Post 2018), with the signatures to compare by.

    `tokenize` is sacrebleu's, by default 13a, or char where the writing puts no spaces between words.
    """
    said, streams, scorers = judges(predictions, references, tokenize=tokenize)
    scores = {name: scorer.corpus_score(said, streams).score for name, scorer in scorers.items()}
    return {**scores, **{f"{name}_signature": f"{scorer.get_signature()}" for name, scorer in scorers.items()}}


def judges(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str | None = None
) -> tuple[list[str], Any, dict[str, Any]]:
    """What sacrebleu is asked: the predictions, the references in streams as it wants them, and its metrics by name."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    _fit(predictions, references)
    said, right = [nfc(line) for line in predictions], [[nfc(line) for line in variants] for variants in references]
    tokenize = tokenize or spacing(right)
    most = max(map(len, right))
    streams = [[v[i] if i < len(v) else None for v in right] for i in range(most)]  # None: has no such variant
    return said, streams, {"chrf": CHRF(), "bleu": BLEU(tokenize=tokenize, force=True)}


def spacing(references: Sequence[Sequence[str]]) -> str:
    """sacrebleu's way to cut texts like these: 13a, or char where the writing puts no spaces between words."""
    lines = [nfc(line) for variants in references for line in variants]
    return "char" if SideStats(lines, None).unspaced else "13a"


def main(metrics: dict[str, Any]) -> tuple[str, float, bool]:
    """What early stopping looks at: its name, its value, and whether higher is better.

    The finer metric of each task: ser moves with every symbol where wer waits for whole answers, and chrF moves from
    the first letters on where BLEU is 0 until four words in a row are right.
    """
    for name, higher in (("ser", False), ("chrf", True)):
        if name in metrics:
            return name, float(metrics[name]), higher
    raise MetricError(
        f"there is neither ser nor chrf among {', '.join(metrics) or 'no metrics'}; use symbols() or text()"
    )


def by_length(
    lengths: Sequence[int],
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    kind: str,
    task: str = "symbols",
    edges: Sequence[int] = (4, 6, 8, 10, 12),
) -> list[dict[str, Any]]:
    """The task's metrics by source length. Each edge is the longest of its bucket; beyond the last all are one.

    A bucket is {"least", "most", "count"} and the metrics; `most` is None in the last; empty ones are left out.
    """
    _fit(predictions, references)
    if len(lengths) != len(predictions):
        raise MetricError(f"{len(lengths)} lengths do not fit {len(predictions)} predictions; give one each")
    if list(edges) != sorted(set(edges)):
        raise MetricError(f"edges must rise; got {list(edges)}")
    buckets, cut = [], spacing(references)  # one way for all, or they could not be compared
    for least, most in zip((0, *(edge + 1 for edge in edges)), (*edges, None), strict=True):
        inside = [i for i, n in enumerate(lengths) if least <= n and (most is None or n <= most)]
        if inside:
            some = [predictions[i] for i in inside], [references[i] for i in inside]
            rates = measure(task, kind, *some, tokenize=cut)
            buckets.append({"least": least, "most": most, "count": len(inside), **rates})
    return buckets


def _closed(side: Side) -> bool:
    """Few symbols and hardly ever a new one, or symbols as short as phones and letters."""
    used = max(1, side.symbols.total())
    width = sum(len(symbol) * count for symbol, count in side.symbols.items()) / used
    few = len(side.symbols) <= 2_000
    return width <= 1.2 or (few and (width <= 2.5 or side.unseen <= 0.02))


def _cut(line: str, kind: str) -> list[str]:
    return nfc(line).split() if kind == "words" else list(nfc(line))


def _fit(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise unless there is a prediction, and a right answer for each."""
    if not predictions or len(predictions) != len(references):
        raise MetricError(f"{len(predictions)} predictions do not fit {len(references)} references; give one each")
    for i, variants in enumerate(references):
        if not variants:
            raise MetricError(f"reference {i} holds no variant; give at least one right answer")
