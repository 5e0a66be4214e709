"""Stages 2 and 3 of a run, choose and tokenize: from raw data to tokenizers and token ids.

All results are stored in the run's data folder; a resumed run opens them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.config import TextSettings, TrainSettings
from regard.errors import RegardError
from regard.text import (
    Batches,
    BpeDropout,
    CorpusStats,
    HeldOutSplit,
    TokenizedPairs,
    Tokenizer,
    choose_tokenizer,
    default_vocabulary_size,
    group_references,
    tokenize_corpus,
    train_tokenizer,
)
from regard.training import metrics
from regard.training.checkpoint import write_state
from regard.training.evaluation import HeldOutSet, Lengths, length_ratio, sample_references
from regard.training.raw_data import SIDES, STATE_FILE, RawData

MAX_CHARACTERS = 20_000  # of a line, when tokenizers are trained: longer lines take minutes


@dataclass(frozen=True)
class TokenizerPair:
    """Result of `choose`: the tokenizers of both sides, and the split of the corpus."""

    data: RawData
    source: Tokenizer
    target: Tokenizer
    split: HeldOutSplit | None
    decisions: list[str]


@dataclass(frozen=True)
class Dataset:
    """Result of `tokenize`: the token ids of all training pairs, and the held-out set."""

    pairs: TokenizedPairs
    held_out: HeldOutSet
    decisions: list[str]
    fingerprint: dict[str, str]
    max_tokens: int

    @cached_property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """Source and target lengths of the pairs that are used."""
        return _lengths(self.pairs, self.max_tokens)

    def batches(
        self, train: TrainSettings, batch_tokens: int, world: int = 1, rank: int = 0
    ) -> Batches:
        """The batches of a run, with BPE-dropout if the settings ask for it."""
        chance = train.bpe_dropout or 0.0
        dropouts = []
        tokenizers = (self.held_out.source, self.held_out.target)
        for side, tokenizer in enumerate(tokenizers):
            options = {"seed": 2 * train.seed + side, "max_tokens": int(self.lengths[side].max())}
            wanted = chance and tokenizer.kind == "bpe"
            dropouts.append(
                BpeDropout(tokenizer.merge_parts, probability=chance, **options) if wanted else None
            )
        return Batches(
            self.pairs,
            batch_tokens=batch_tokens,
            bpe_dropout=dropouts,
            seed=train.seed,
            max_tokens=self.max_tokens,
            world_size=world,
            rank=rank,
        )


def choose(data: RawData) -> TokenizerPair:
    """Stage 2: choose and train the tokenizers."""
    if data.recorded is not None:
        decisions = list(data.recorded["decisions"])
        shared, threshold = data.recorded["shared_vocabulary"], data.recorded["threshold"]
    else:
        assert data.stats is not None
        decisions = list(data.decisions)
        shared = _train_tokenizers(data.stats, data.text, data.folder, decisions)
        threshold = None if data.stats.split is None else data.stats.split.threshold
    source, target = (Tokenizer.load(_tokenizer_file(data.folder, side)) for side in SIDES)
    split = None if threshold is None else HeldOutSplit(data.seed, threshold)
    return TokenizerPair(data, source, source if shared else target, split, decisions)


def tokenize(chosen: TokenizerPair, report: Callable[[str], None]) -> Dataset:
    """Stage 3: write the token ids of all training pairs, and select the held-out set."""
    data, split = chosen.data, chosen.split
    max_tokens, decisions = data.text.max_tokens, list(chosen.decisions)
    pairs = tokenize_corpus(
        data.corpus if split is None else split.training_pairs(data.corpus),
        chosen.source,
        chosen.target,
        data.folder / "ids",
        fingerprint=data.fingerprint,
        progress=lambda count: report(f"tokenized {count:,} pairs"),
    )
    max_held_out = data.max_held_out
    if data.recorded is None:
        decisions += _describe_pairs(pairs, max_tokens)
        state = {"decisions": decisions, "shared_vocabulary": chosen.source is chosen.target}
        state |= {"threshold": None if split is None else split.threshold}
        state |= {"fingerprint": data.fingerprint, "settings": data.settings}
        write_state(data.folder / STATE_FILE, {**state, "max_held_out": max_held_out})
    else:
        max_held_out = data.recorded.get("max_held_out", max_held_out)
    references = _select_references(chosen, max_held_out, decisions)
    task = metrics.choose_task(
        chosen.target.kind, [line for r in references.values() for line in r]
    )
    sources, targets = _lengths(pairs, max_tokens)
    max_length = int(min(max_tokens, 2 * int(targets.max()) + 10))
    ratio = length_ratio(sources, targets)
    held_out = HeldOutSet(chosen.source, chosen.target, references, task, max_length, ratio)
    return Dataset(pairs, held_out, decisions, data.fingerprint, max_tokens)


def _select_references(
    chosen: TokenizerPair, max_held_out: int, decisions: list[str]
) -> dict[str, list[str]]:
    """The held-out sources within the length limit, with all their references."""
    data, split = chosen.data, chosen.split
    max_tokens = data.text.max_tokens
    held_out = data.held_out or () if split is None else split.held_out_pairs(data.corpus)
    references = sample_references(group_references(held_out), max_held_out)
    if not references:
        raise RegardError("the held-out set is empty; give one with pairs, or leave it out")
    used = {s: r for s, r in references.items() if len(chosen.source.encode(s)) <= max_tokens}
    if not used:
        limit = f"text.max_tokens = {max_tokens}"
        raise RegardError(f"all held-out sources are longer than {limit} tokens; raise it")
    if skipped := len(references) - len(used):
        what = f"held-out sources with more than {max_tokens} tokens"
        decisions.append(f"{skipped:,} {what} are skipped (text.max_tokens)")
    return used


def _train_tokenizers(
    stats: CorpusStats, text: TextSettings, folder: Path, decisions: list[str]
) -> bool:
    """Choose, train and save the tokenizers; returns whether both sides share one."""
    sides = {"source": _shorten(stats.sources), "target": _shorten(stats.targets)}
    everything = [line for lines in sides.values() for line in lines]
    if text.shared_vocabulary:  # one choice, from the lines of both sides
        requested = text.source_tokenizer
        requested = requested if requested != "auto" else text.target_tokenizer
        choice, reason = _choose_one(requested, text, everything, 2 * stats.pairs)
        decisions.append(f"tokenizer of both sides: {reason}")
        choices = [choice] * 2
    else:
        choices = []
        for side, lines in sides.items():
            requested = getattr(text, f"{side}_tokenizer")
            choice, reason = _choose_one(requested, text, lines, stats.pairs)
            decisions.append(f"{side} tokenizer: {reason}")
            choices.append(choice)
    subwords = [kind in ("bpe", "unigram") for kind, _ in choices]
    if text.vocabulary_size and not any(subwords):
        kinds = " and ".join(dict.fromkeys(kind for kind, _ in choices))
        raise RegardError(
            f"text.vocabulary_size = {text.vocabulary_size} applies to bpe and unigram tokenizers, "
            f"and both sides are {kinds}; remove it"
        )
    shared = text.shared_vocabulary
    if shared is None:
        shared = subwords[0] and choices[0] == choices[1]
    if shared:
        decisions.append("one vocabulary for both sides")
        tokenizer = train_tokenizer(choices[0][0], everything, size=choices[0][1])
        for side in SIDES:
            tokenizer.save(_tokenizer_file(folder, side))
        return True
    for side, (kind, size) in zip(SIDES, choices, strict=True):
        train_tokenizer(kind, sides[side], size=size).save(_tokenizer_file(folder, side))
    return False


def _choose_one(
    requested: str, text: TextSettings, lines: list[str], total: int
) -> tuple[tuple[str, int | None], str]:
    """The kind and vocabulary size of one tokenizer, and the reason."""
    if requested == "auto":
        choice = choose_tokenizer(lines, total=total)
        kind, size, reason = choice.kind, choice.size, choice.reason
    else:
        kind, reason = requested, f"{requested}: as requested"
        size = default_vocabulary_size(requested, lines, total=total)
    if kind in ("bpe", "unigram") and text.vocabulary_size:
        size = text.vocabulary_size
    return (kind, size), reason


def _shorten(lines: list[str]) -> list[str]:
    return [line[:MAX_CHARACTERS] for line in lines]


def _tokenizer_file(folder: Path, side: str) -> Path:
    return folder / f"{side}.tokenizer.json"


def _lengths(pairs: TokenizedPairs, max_tokens: int) -> tuple[Lengths, Lengths]:
    """Source and target lengths of the pairs within the limit."""
    sources, targets = pairs.source_lengths, pairs.target_lengths
    used = (sources <= max_tokens) & (targets <= max_tokens)
    return (sources, targets) if used.all() else (sources[used], targets[used])


def _describe_pairs(pairs: TokenizedPairs, max_tokens: int) -> list[str]:
    """What users should know: pairs that are too long, and unknown symbols."""
    long = (pairs.source_lengths > max_tokens) | (pairs.target_lengths > max_tokens)
    count = int(long.sum())
    if count == len(pairs):
        limit = f"text.max_tokens = {max_tokens}"
        raise RegardError(f"all {count:,} pairs are longer than {limit} tokens; raise it")
    lines = []
    if count:
        what = f"pairs with more than {max_tokens} tokens on a side"
        lines.append(f"{count:,} {what} are skipped (text.max_tokens)")
    for side in SIDES:
        unknown = pairs.counts.get(side, {}).get("unknown", 0)
        if unknown:
            lines.append(f"{unknown:,} unknown symbols on the {side} side")
    return lines
