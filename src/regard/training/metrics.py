"""Metrics, named after the task: error rates of symbol sequences, BLEU and chrF of running text.

A task is what the targets consist of: phones, characters, symbols, tokens or text. Predictions are
texts; references are lists of texts, because a source may have several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.text.tokenizer_choice import SideStats
from regard.text.tokenizers import nfc

SENTENCE_WORDS = 5  # mean words per line from which targets count as sentences
SENTENCE_CHARACTERS = 12  # in scripts without spaces
SHORT_SYMBOL = 2.5  # mean characters of a symbol; longer ones are called tokens
TASKS = {"phones": "phone", "characters": "character", "symbols": "symbol", "tokens": "token"}
ARPABET = {
    *("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"),
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH"),
    *("T", "TH", "V", "W", "Y", "Z", "ZH"),
}
IPA = frozenset("æçðøħŋœθβχɸʲʰʷˈˌːˑ\u0303\u0329\u0361")


class MetricError(RegardError):
    """Predictions and references that cannot be compared."""


class MetricInfo(NamedTuple):
    """A metric in words: its label, what it counts, and whether higher is better."""

    label: str
    meaning: str
    higher: bool


METRICS: dict[str, MetricInfo] = {
    **{
        f"{unit}_error_rate": MetricInfo(
            f"{unit} error rate", f"edits per 100 {task} of the reference", False
        )
        for task, unit in TASKS.items()
    },
    "sequence_error_rate": MetricInfo(
        "sequence error rate", "outputs that differ from every reference, %", False
    ),
    "sequence_accuracy": MetricInfo("sequence accuracy", "outputs that equal a reference, %", True),
    "chrf": MetricInfo("chrF", "overlap of character n-grams with the reference, 0–100", True),
    "bleu": MetricInfo("BLEU", "overlap of word n-grams with the reference, 0–100", True),
}


def label(name: str) -> str:
    """The name of a metric in words."""
    return METRICS[name].label if name in METRICS else name.replace("_", " ")


def legend(names: Iterable[str]) -> list[str]:
    """What each metric means, one line each; metrics without a description are left out."""
    lines = []
    for info in (METRICS[name] for name in names if name in METRICS):
        better = "higher" if info.higher else "lower"
        lines.append(f"{info.label}: {info.meaning}; {better} is better")
    return lines


def choose_task(kind: str, targets: Iterable[str]) -> str:
    """The task, by the kind of the target tokenizer and a sample of targets.

    Words of a closed set are phones (ARPAbet or IPA), symbols (short ones) or tokens, however many
    there are. Other targets are tokens or characters if they are short, such as names and word
    forms, and text if they are sentences.
    """
    side = SideStats([nfc(line) for line in targets], None)
    if not side.lines:
        raise MetricError("no targets to choose a metric by; give some")
    if kind == "words" and _closed(side):
        return _name_symbols(side)
    running = side.symbols_per_line >= SENTENCE_WORDS or (
        side.unspaced and side.characters_per_line > SENTENCE_CHARACTERS
    )
    if running:
        return "text"
    return "tokens" if kind == "words" else "characters"


def measure(
    task: str,
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """The metrics of a task that `choose_task` returned; `tokenize` is for text."""
    if task == "text":
        return text(predictions, references, tokenize=tokenize)
    return error_rates(task, predictions, references)


def error_rates(
    task: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Error rates in per cent, such as phone_error_rate: the summed edits to the nearest reference
    over the summed lengths of those. Of equally near references the longest counts, so order is
    irrelevant. sequence_error_rate: predictions that equal none of their references;
    sequence_accuracy: the others.
    """
    results = compare(predictions, references, task=task)
    edits, length = sum(one.edits for one in results), sum(one.length for one in results)
    wrong = 100 * sum(one.wrong for one in results) / len(results)
    return name_rates(task, 100 * edits / max(1, length), wrong, 100 - wrong)


def name_rates(task: str, unit_rate: Any, sequence_rate: Any, accuracy: Any) -> dict[str, Any]:
    """The three error rates of a task by name."""
    names = (f"{TASKS[task]}_error_rate", "sequence_error_rate", "sequence_accuracy")
    return dict(zip(names, (unit_rate, sequence_rate, accuracy), strict=True))


class Comparison(NamedTuple):
    """A prediction and its nearest reference: wrong or not, edits, and length of the reference."""

    wrong: bool
    edits: int
    length: int
    nearest: str


def compare(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, task: str
) -> list[Comparison]:
    """Each prediction with its nearest reference."""
    from rapidfuzz.distance import Levenshtein

    _check_counts(predictions, references)
    results = []
    for prediction, variants in zip(predictions, references, strict=True):
        symbols_of = split_symbols(prediction, task)
        options = []
        for i, variant in enumerate(split_symbols(variant, task) for variant in variants):
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


def primary_metric(values: Mapping[str, Any], name: str | None = None) -> tuple[str, float, bool]:
    """The metric that selects the best model and stops early: name, value, whether higher is
    better.

    By default the finest metric of the task: a phone error rate changes with every phone, the
    sequence error rate only with whole outputs; chrF changes from the first letters on, while BLEU
    is 0 until four words in a row are right.
    """
    candidates = [name] if name is not None else [f"{unit}_error_rate" for unit in TASKS.values()]
    for candidate in candidates if name is not None else [*candidates, "chrf"]:
        if candidate in values:
            higher = METRICS[candidate].higher if candidate in METRICS else True
            return candidate, float(values[candidate]), higher
    names = ", ".join(n for n, value in values.items() if not isinstance(value, str))
    raise MetricError(f"there is no metric {name or 'to select by'}; choose from {names or 'none'}")


def by_length(
    lengths: Sequence[int],
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    task: str,
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
            rates = measure(task, *some, tokenize=cut)
            buckets.append({"least": least, "most": most, "count": len(inside), **rates})
    return buckets


def _closed(side: SideStats) -> bool:
    """Few symbols and hardly ever a new one, or symbols as short as phones and letters."""
    width = _symbol_width(side)
    few = len(side.symbols) <= 2_000
    return width <= 1.2 or (few and (width <= SHORT_SYMBOL or side.unseen <= 0.02))


def _name_symbols(side: SideStats) -> str:
    """phones, symbols or tokens, by the symbols of a closed set."""
    used = max(1, side.symbols.total())
    arpabet = {symbol: symbol.rstrip("012") in ARPABET for symbol in side.symbols}
    in_arpabet = sum(count for symbol, count in side.symbols.items() if arpabet[symbol])
    digraphs = any(arpabet[symbol] and len(symbol) > 1 for symbol in arpabet)
    with_ipa = sum(n for symbol, n in side.symbols.items() if _has_ipa(symbol))
    short = _symbol_width(side) <= SHORT_SYMBOL
    if (digraphs and in_arpabet >= 0.95 * used) or (short and with_ipa >= 0.05 * used):
        return "phones"
    return "symbols" if short else "tokens"


def _has_ipa(symbol: str) -> bool:
    return any("ɐ" <= character <= "ʯ" or character in IPA for character in symbol)


def _symbol_width(side: SideStats) -> float:
    """The mean number of characters of a symbol."""
    total = sum(len(symbol) * count for symbol, count in side.symbols.items())
    return total / max(1, side.symbols.total())


def split_symbols(line: str, task: str) -> list[str]:
    """The units that error rates count: characters, or whatever white space separates."""
    return nfc(line).split() if task in ("phones", "symbols", "tokens") else list(nfc(line))


def _check_counts(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise unless there is a prediction, and a right answer for each."""
    if not predictions or len(predictions) != len(references):
        raise MetricError(
            f"{len(predictions)} predictions do not fit {len(references)} references; give one each"
        )
    for i, variants in enumerate(references):
        if not variants:
            raise MetricError(f"reference {i} holds no variant; give at least one right answer")
