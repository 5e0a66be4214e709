"""From raw pairs to what training reads: tokenisers, ids on disk, and the held-out part."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32

from regard.config import TextSettings, TrainSettings
from regard.errors import RegardError, choose
from regard.search.length_batching import EXTRA, RATIO
from regard.text import (
    TOKENIZERS,
    Batches,
    BpeDropout,
    Corpus,
    CorpusStats,
    HeldOutSplit,
    Overlap,
    TokenizedPairs,
    Tokenizer,
    choose_tokenizer,
    collect_stats,
    default_vocabulary_size,
    group_references,
    tokenize_corpus,
    train_tokenizer,
)
from regard.train import metrics
from regard.train import state_file as notes
from regard.train.evaluation import Exam

MOST_QUESTIONS = {"cpu": 2_000, "cuda": 10_000}  # which weights are the best is decided on these
OWN = {"ids", "ids.partial", "prepared.json", "prepared.json.partial", "bad-lines.txt", "bad-lines.txt.partial"} | {
    f"{side}.tokenizer.json{ending}" for side in ("source", "target") for ending in ("", ".partial")
}
NOTED = {"decisions", "shared", "threshold", "fingerprint", "asked"}
CLIPPED = 20_000  # letters of a line that tokenisers are trained on
MOST_RATIO = 16.0  # an answer that much longer than its source is a mistake in the data, or the model's


@dataclass(frozen=True)
class Prepared:
    """All that comes from the data."""

    pairs: TokenizedPairs
    exam: Exam
    decisions: list[str]
    fingerprint: dict[str, str]
    limit: int

    @cached_property
    def lengths(self) -> tuple[Int32[np.ndarray, " pair"], Int32[np.ndarray, " pair"]]:
        """Of both sides of the pairs that are read."""
        return _within(self.pairs, self.limit)

    def batches(self, train: TrainSettings, batch_tokens: int, world: int = 1, rank: int = 0) -> Batches:
        """What is read step by step, pieces respelt by chance where that is asked for."""
        sides = tuple(zip((self.exam.source, self.exam.target), self.lengths, strict=True))
        chance = train.bpe_dropout or 0.0
        bpe_dropout = [
            BpeDropout(
                tokenizer.merge_parts, probability=chance, seed=2 * train.seed + side, max_tokens=int(lengths.max())
            )
            if chance and tokenizer.kind == "bpe"
            else None
            for side, (tokenizer, lengths) in enumerate(sides)
        ]
        told = {"seed": train.seed, "max_tokens": self.limit, "world_size": world, "rank": rank}
        return Batches(self.pairs, batch_tokens=batch_tokens, bpe_dropout=bpe_dropout, **told)


def prepare(
    corpus: Corpus,
    held_out: Corpus | None,
    text: TextSettings,
    seed: int,
    home: Path,
    say: Callable[[str], None],
    *,
    most: int = MOST_QUESTIONS["cpu"],
) -> Prepared:
    """Tokenisers trained, ids written under `home`, at `most` so many questions kept: once. A second call only opens
    what is there."""
    _check(text)
    prints = corpus.fingerprint()
    if held_out is not None:
        prints |= {f"held out: {name}": value for name, value in held_out.fingerprint().items()}
    asked = {"train.seed": seed, **{f"text.{name}": value for name, value in text.model_dump().items()}}
    known = home / "prepared.json"
    if (facts := notes.read(known, NOTED)) is not None:
        _unchanged(facts["fingerprint"], prints)
        _as_asked(facts["asked"], asked)
        seen = None
    else:
        _no_strangers(home)
        shutil.rmtree(home / "ids", ignore_errors=True)  # of a run that ended before it could say what it had read
        home.mkdir(parents=True, exist_ok=True)
        reading = corpus.read(home / "bad-lines.txt" if corpus.bad_lines == "skip" else None)
        overlap = Overlap(() if held_out is None else (pair.source for pair in held_out))
        seen = collect_stats(overlap.watch(reading), seed=seed, hold_out=held_out is None)
        bad = [reading.summary()] if reading.problems else []
        facts = _decide(seen, text, home, [*corpus.decisions, *bad, *overlap.warnings()])
        facts |= {"fingerprint": prints, "asked": asked, "most": most}
    source, target = (Tokenizer.load(home / f"{side}.tokenizer.json") for side in ("source", "target"))
    if facts["shared"]:
        target = source
    split = None if facts["threshold"] is None else HeldOutSplit(seed, facts["threshold"])
    pairs = tokenize_corpus(
        corpus if split is None else split.training_pairs(corpus),
        source,
        target,
        home / "ids",
        fingerprint=prints,
        progress=lambda done: say(f"tokenised {done:,} pairs"),
    )
    if seen is not None:
        _report(pairs, text, facts)
        notes.write(known, facts)
    questions = _some(
        group_references(split.held_out_pairs(corpus) if split is not None else held_out or ()), facts.get("most", most)
    )
    if not questions:
        raise RegardError("the held-out part is empty; give one with pairs in it, or leave it out")
    questions, said = _short(questions, source, text.max_tokens)
    task = metrics.choose(target.kind, [line for lines in questions.values() for line in lines])
    sources, targets = _within(pairs, text.max_tokens)
    longest = int(min(text.max_tokens, 2 * int(targets.max()) + 10))
    exam = Exam(source, target, questions, task, longest, _ratio(sources, targets))
    return Prepared(pairs, exam, [*facts["decisions"], *said], prints, text.max_tokens)


def _check(text: TextSettings) -> None:
    """Raise for what is wrong whatever the data are."""
    for kind in (text.source_tokenizer, text.target_tokenizer):
        choose({"auto": None, **TOKENIZERS}, kind, "tokenizer")
    if text.shared_vocabulary and len({text.source_tokenizer, text.target_tokenizer} - {"auto"}) > 1:
        raise RegardError(
            "text.shared_vocabulary needs one kind of tokenizer on both sides; "
            f"text.source_tokenizer is {text.source_tokenizer} and text.target_tokenizer is "
            f"{text.target_tokenizer}; make them the same, or leave one to auto"
        )


def _decide(seen: CorpusStats, text: TextSettings, home: Path, decisions: list[str]) -> dict[str, Any]:
    """Choose and train the tokenisers; say why."""
    sides = {"source": _clipped(seen.sources), "target": _clipped(seen.targets)}
    every = [line for lines in sides.values() for line in lines]
    if text.shared_vocabulary:  # one choice, of all lines
        asked = text.source_tokenizer if text.source_tokenizer != "auto" else text.target_tokenizer
        kind, size, reason = _chosen(asked, text, every, 2 * seen.pairs)
        decisions.append(f"tokeniser of both sides {reason}")
        chosen = [(kind, size)] * 2
    else:
        chosen = []
        for side, lines in sides.items():
            kind, size, reason = _chosen(getattr(text, f"{side}_tokenizer"), text, lines, seen.pairs)
            decisions.append(f"{side} tokeniser {reason}")
            chosen.append((kind, size))
    if text.vocabulary_size and not any(kind in ("bpe", "unigram") for kind, _ in chosen):
        kinds = " and ".join(dict.fromkeys(kind for kind, _ in chosen))
        raise RegardError(
            f"text.vocabulary_size = {text.vocabulary_size} is for pieces (bpe, unigram); "
            f"both sides are {kinds}, so leave it out"
        )
    pieces = chosen[0][0] in ("bpe", "unigram") and chosen[0] == chosen[1]
    shared = text.shared_vocabulary if text.shared_vocabulary is not None else pieces
    if shared:
        made = train_tokenizer(chosen[0][0], every, size=chosen[0][1])
        for side in sides:
            made.save(home / f"{side}.tokenizer.json")
        decisions.append("one vocabulary for both sides")
    else:
        for (side, lines), (kind, size) in zip(sides.items(), chosen, strict=True):
            train_tokenizer(kind, lines, size=size).save(home / f"{side}.tokenizer.json")
    return {
        "decisions": decisions,
        "shared": shared,
        "threshold": None if seen.split is None else seen.split.threshold,
    }


def _clipped(lines: list[str]) -> list[str]:
    """Lines no longer than tokenisers can be trained on: one of a million letters would take minutes, and no model."""
    return [line[:CLIPPED] for line in lines]


def _no_strangers(home: Path) -> None:
    """Raise where a run would write over what no run has written."""
    inside = {"source.ids", "target.ids", "source.offsets", "target.offsets", "ids.json"}
    for folder, own in ((home, OWN), (home / "ids", inside)):
        if folder.exists() and not folder.is_dir():
            raise RegardError(f"{str(folder)!r} is a file, where a run keeps its data; use another --out")
        for path in sorted(folder.iterdir()) if folder.exists() else ():
            if path.name not in own:
                raise RegardError(f"{str(path)!r} belongs to no run, and would be lost; use another --out")


def _chosen(wanted: str, text: TextSettings, lines: list[str], total: int) -> tuple[str, int | None, str]:
    """A tokeniser's kind, size and why."""
    if wanted == "auto":
        choice = choose_tokenizer(lines, total=total)
        kind, size, reason = choice.kind, choice.size, choice.reason
    else:
        kind, size, reason = wanted, default_vocabulary_size(wanted, lines, total=total), f"{wanted}: as you asked"
    return kind, text.vocabulary_size if kind in ("bpe", "unigram") and text.vocabulary_size else size, reason


def _within(pairs: TokenizedPairs, limit: int) -> tuple[Int32[np.ndarray, " pair"], Int32[np.ndarray, " pair"]]:
    """The lengths of both sides of the pairs that are read: those beyond the limit are left out."""
    sources, targets = pairs.source_lengths, pairs.target_lengths
    read = (sources <= limit) & (targets <= limit)
    return (sources, targets) if read.all() else (sources[read], targets[read])


def _some(questions: dict[str, list[str]], most: int) -> dict[str, list[str]]:
    """At most so many, from everywhere: corpora are often sorted."""
    every, count = list(questions.items()), min(most, len(questions))
    return dict(every[i * len(every) // count] for i in range(count))


def _short(questions: dict[str, list[str]], source: Tokenizer, limit: int) -> tuple[dict[str, list[str]], list[str]]:
    """Those that a model may be asked, and what is to be said of the others."""
    short = {text: answers for text, answers in questions.items() if len(source.encode(text)) <= limit}
    if not short:
        raise RegardError(
            f"all sources of the held-out part are longer than text.max_tokens = {limit} tokens; raise it"
        )
    long = len(questions) - len(short)
    return short, [
        f"{long:,} held-out sources have over {limit} tokens and are not asked (text.max_tokens)"
    ] if long else []


def _ratio(sources: Int32[np.ndarray, " pair"], targets: Int32[np.ndarray, " pair"]) -> float:
    """How many times as long as its source an answer may be: what nearly all pairs need, and no less than usual."""
    needed = (targets - EXTRA) / (sources + 1)
    return float(min(MOST_RATIO, max(RATIO, np.percentile(needed, 99.9, method="higher"))))


def _report(pairs: TokenizedPairs, text: TextSettings, facts: dict[str, Any]) -> None:
    """What people should know of the data: over-long pairs, unknown symbols."""
    long = int(((pairs.source_lengths > text.max_tokens) | (pairs.target_lengths > text.max_tokens)).sum())
    if long == len(pairs):
        raise RegardError(f"all {long:,} pairs are longer than text.max_tokens = {text.max_tokens} tokens; raise it")
    if long:
        facts["decisions"].append(
            f"{long:,} pairs have over {text.max_tokens} tokens on a side and are left out (text.max_tokens)"
        )
    for side in ("source", "target"):
        unknown = pairs.counts.get(side, {}).get("unknown", 0)
        if unknown:
            facts["decisions"].append(f"{unknown:,} unknown symbols on the {side} side")


def _unchanged(was: dict[str, str], now: dict[str, str]) -> None:
    changed = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
    if changed:
        names = ", ".join(map(repr, changed))
        raise RegardError(f"the data changed since this run began: {names}; use the old data, or another --out")


def _as_asked(was: dict[str, Any], now: dict[str, Any]) -> None:
    changed = [f"{name} was {was.get(name)!r} and is {now[name]!r}" for name in now if was.get(name) != now[name]]
    if changed:
        what = "; ".join(changed)
        raise RegardError(f"the data were prepared with other settings: {what}. Use the old ones, or another --out")
