"""Metrics of a task: error rates for symbol sequences, BLEU and chrF for running text.

Predictions are texts; references are lists of texts, because a source may have several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.text.tokenizer_choice import SideStats
from regard.text.tokenizers import nfc

SENTENCE_WORDS = 5  # mean words per line from which targets count as sentences
SENTENCE_CHARACTERS = 12  # in scripts without spaces


class MetricError(RegardError):
    """Predictions and references that cannot be compared."""


def choose_task(kind: str, targets: Iterable[str]) -> str:
    """'symbols' or 'text', by the kind of the target tokenizer and a sample of targets.

    Words of a closed set (phones, tags, actions) are symbols, however many there are. Other targets
    are symbols if they are short, such as names and word forms, and text if they are sentences.
    """
    side = SideStats([nfc(line) for line in targets], None)
    if not side.lines:
        raise MetricError("no targets to choose a metric by; give some")
    if kind == "words" and _closed(side):
        return "symbols"
    running = side.symbols_per_line >= SENTENCE_WORDS or (
        side.unspaced and side.characters_per_line > SENTENCE_CHARACTERS
    )
    return "text" if running else "symbols"


def measure(
    task: str,
    kind: str,
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """The metrics of a task that `choose_task` returned; `tokenize` is for text."""
    if task == "symbols":
        return symbols(predictions, references, kind=kind)
    return text(predictions, references, tokenize=tokenize)


def symbols(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, kind: str
) -> dict[str, float]:
    """Error rates in per cent. For a `words` tokenizer, symbols are words; otherwise characters.

    wer: predictions that equal none of their references (word error rate of spelling → sound);
    exact: the others. ser: summed edits to the nearest reference over the summed lengths of those
    (for phones, the PER). Of equally near references the longest counts, so order is irrelevant.
    """
    results = compare(predictions, references, kind=kind)
    edits, length = sum(one.edits for one in results), sum(one.length for one in results)
    wer = 100 * sum(one.wrong for one in results) / len(results)
    return {"ser": 100 * edits / max(1, length), "wer": wer, "exact": 100 - wer}


class Comparison(NamedTuple):
    """A prediction and its nearest reference: wrong or not, edits, and length of the reference."""

    wrong: bool
    edits: int
    length: int
    nearest: str


def compare(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, kind: str
) -> list[Comparison]:
    """Each prediction with its nearest reference."""
    from rapidfuzz.distance import Levenshtein

    _check_counts(predictions, references)
    results = []
    for prediction, variants in zip(predictions, references, strict=True):
        symbols_of = _split(prediction, kind)
        options = []
        for i, variant in enumerate(_split(variant, kind) for variant in variants):
            options.append((Levenshtein.distance(symbols_of, variant), -len(variant), i))
        edits, negative_length, i = min(options)
        results.append(Comparison(edits > 0, edits, -negative_length, variants[i]))
    return results


def text(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str | None = None
) -> dict[str, float | str]:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) with their sacrebleu signatures.

    `tokenize` is sacrebleu's; default: 13a, or char for scripts without spaces.
    """
    outputs, streams, scorers = corpus_scorers(predictions, references, tokenize=tokenize)
    values: dict[str, float | str] = {}
    for name, scorer in scorers.items():
        values[name] = scorer.corpus_score(outputs, streams).score
    return {**values, **{f"{n}_signature": f"{s.get_signature()}" for n, s in scorers.items()}}


def corpus_scorers(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str | None = None
) -> tuple[list[str], Any, dict[str, Any]]:
    """The arguments of sacrebleu: predictions, reference streams, and its metrics by name."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    _check_counts(predictions, references)
    outputs = [nfc(line) for line in predictions]
    normal = [[nfc(line) for line in variants] for variants in references]
    tokenize = tokenize or bleu_tokenizer(normal)
    count = max(map(len, normal))
    # sacrebleu marks a missing reference by None
    streams = [[v[i] if i < len(v) else None for v in normal] for i in range(count)]
    return outputs, streams, {"chrf": CHRF(), "bleu": BLEU(tokenize=tokenize, force=True)}


def bleu_tokenizer(references: Sequence[Sequence[str]]) -> str:
    """sacrebleu's tokenizer for these texts: 13a, or char for scripts without spaces."""
    lines = [nfc(line) for variants in references for line in variants]
    return "char" if SideStats(lines, None).unspaced else "13a"


def primary_metric(metrics: dict[str, Any]) -> tuple[str, float, bool]:
    """The metric that early stopping uses: its name, its value, and whether higher is better.

    It is the finer metric of each task: ser changes with every symbol, wer only with whole outputs;
    chrF changes from the first letters on, while BLEU is 0 until four words in a row are right.
    """
    for name, higher in (("ser", False), ("chrf", True)):
        if name in metrics:
            return name, float(metrics[name]), higher
    names = ", ".join(metrics) or "no metrics"
    raise MetricError(f"expected ser or chrf among the metrics; got {names}")


def by_length(
    lengths: Sequence[int],
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    kind: str,
    task: str = "symbols",
    edges: Sequence[int] = (4, 6, 8, 10, 12),
) -> list[dict[str, Any]]:
    """The task's metrics by source length. Each edge is the maximum of its bucket; one more bucket
    holds everything longer.

    A bucket is {"least", "most", "count"} and the metrics; `most` is None in the last bucket.
    Empty buckets are omitted.
    """
    _check_counts(predictions, references)
    if len(lengths) != len(predictions):
        raise MetricError(
            f"{len(lengths)} lengths do not fit {len(predictions)} predictions; give one each"
        )
    if list(edges) != sorted(set(edges)):
        raise MetricError(f"edges must rise; got {list(edges)}")
    buckets, cut = [], bleu_tokenizer(references)  # one way for all, or they could not be compared
    for least, most in zip((0, *(edge + 1 for edge in edges)), (*edges, None), strict=True):
        inside = [i for i, n in enumerate(lengths) if least <= n and (most is None or n <= most)]
        if inside:
            some = [predictions[i] for i in inside], [references[i] for i in inside]
            rates = measure(task, kind, *some, tokenize=cut)
            buckets.append({"least": least, "most": most, "count": len(inside), **rates})
    return buckets


def _closed(side: SideStats) -> bool:
    """Few symbols and hardly ever a new one, or symbols as short as phones and letters."""
    used = max(1, side.symbols.total())
    width = sum(len(symbol) * count for symbol, count in side.symbols.items()) / used
    few = len(side.symbols) <= 2_000
    return width <= 1.2 or (few and (width <= 2.5 or side.unseen <= 0.02))


def _split(line: str, kind: str) -> list[str]:
    return nfc(line).split() if kind == "words" else list(nfc(line))


def _check_counts(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise unless there is a prediction, and a right answer for each."""
    if not predictions or len(predictions) != len(references):
        raise MetricError(
            f"{len(predictions)} predictions do not fit {len(references)} references; give one each"
        )
    for i, variants in enumerate(references):
        if not variants:
            raise MetricError(f"reference {i} holds no variant; give at least one right answer")
