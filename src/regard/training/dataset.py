"""Stage 3 of a run, tokenize: from tokenizers to token ids and the held-out set.

All results are stored in the run's data folder; a resumed run opens them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from regard.bundle import SourceCollector, TrainingSources
from regard.bundle.manifest import TRAINING_SOURCES
from regard.config import TrainSettings
from regard.errors import RegardError
from regard.text import (
    Batches,
    BpeDropout,
    TokenizedPairs,
    group_references,
    tokenize_corpus,
)
from regard.text.bpe_dropout import merge_parts
from regard.text.reading import Pair
from regard.training import metrics
from regard.training.augmentation import Augmentation, choose_augmentation
from regard.training.baselines import Scores, most_frequent_target, score_baselines
from regard.training.checkpoint import write_state
from regard.training.divided_corpus import DividedCorpus
from regard.training.evaluation import HeldOutSet, Lengths, length_ratio, sample_references
from regard.training.preparation_progress import PreparationProgress
from regard.training.raw_data import SIDES, STATE_FILE
from regard.training.tokenizer_pair import TokenizerPair

SMALL_HELD_OUT = 200  # sources, below which metrics are uncertain by more than 7 points


@dataclass(frozen=True)
class Dataset:
    """Result of `tokenize`: the token ids of all training pairs, and the held-out set."""

    pairs: TokenizedPairs
    held_out: HeldOutSet
    decisions: list[str]
    fingerprint: dict[str, str]
    max_tokens: int
    training_sources: TrainingSources
    frequent_target: str
    baselines: Scores
    augmentation: Augmentation | None = None

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
                BpeDropout(merge_parts(tokenizer), probability=chance, **options)
                if wanted
                else None
            )
        return Batches(
            self.pairs,
            batch_tokens=batch_tokens,
            bpe_dropout=dropouts,
            reversed_targets=self.held_out.template.reversed,
            seed=train.seed,
            max_tokens=self.max_tokens,
            world_size=world,
            rank=rank,
        )


def tokenize(
    chosen: TokenizerPair,
    report: Callable[[str], None],
    progress: PreparationProgress | None = None,
) -> Dataset:
    """Stage 3: write the token ids of all training pairs, and select the held-out set."""
    data, progress = chosen.data, progress or PreparationProgress(report)
    max_tokens, decisions = data.text.max_tokens, list(chosen.decisions)
    collector = SourceCollector(data.text.split_seed)
    recorded_pairs = (data.recorded or {}).get("held_out_pairs")
    divided = DividedCorpus(data.corpus, data.held_out, chosen.split, recorded_pairs)
    watched: Iterable[Pair] = collector.watch(divided.training_pairs())
    augmentation = _augmentation(chosen, decisions)
    if augmentation is not None:
        sides = chosen.source, chosen.target
        watched = augmentation.extend(watched, *sides, data.text.split_seed)
    total = data.stats.pairs if data.stats is not None and augmentation is None else None
    progress.stage("tokenizing the pairs")
    pairs = tokenize_corpus(
        watched,
        chosen.source,
        chosen.target,
        data.folder / "ids",
        fingerprint=data.fingerprint,
        progress=lambda count: progress.update("tokenized", count, total),
        report=report,
    )
    first, recorded = data.recorded is None, data.recorded or {}
    if first:
        report(f"tokenized {len(pairs):,} pairs")
    max_held_out = recorded.get("max_held_out", data.max_held_out)
    if first:
        decisions += _describe_pairs(pairs, max_tokens)
        collector.sources().save(data.folder / TRAINING_SOURCES)
    stated = list(decisions)  # the state has the decisions that do not depend on the held-out set
    references = _select_references(chosen, divided, max_held_out, decisions)
    targets = [line for lines in references.values() for line in lines]
    task = metrics.choose_task(chosen.target.kind, targets)
    if first:
        facts: dict[str, Any] = {"decisions": stated}
        facts["held_out_pairs"] = divided.record()
        if augmentation is not None:
            facts["augmentation"] = asdict(augmentation)
        recorded = _record(chosen, facts, task, references)
    lengths = _lengths(pairs, max_tokens)
    max_length = int(min(max_tokens, 2 * int(lengths[1].max()) + 10))
    ratio = length_ratio(*lengths)
    held_out = HeldOutSet(
        chosen.source,
        chosen.target,
        references,
        task,
        max_length,
        ratio,
        template=chosen.template,
    )
    sources = _load_sources(chosen, recorded, report)
    known = recorded["frequent_target"], recorded["baselines"]
    about = data.fingerprint, max_tokens, sources
    return Dataset(pairs, held_out, decisions, *about, *known, augmentation)


def _augmentation(chosen: TokenizerPair, decisions: list[str]) -> Augmentation | None:
    """The augmentation of the training pairs, chosen at the first start and recorded."""
    data = chosen.data
    if data.recorded is not None:
        recorded = data.recorded.get("augmentation")
        return None if recorded is None else Augmentation(**recorded)
    stats = data.stats
    assert stats is not None
    sample = [Pair(*pair) for pair in zip(stats.sources, stats.targets, strict=True)]
    sides = chosen.source, chosen.target
    augmentation, reason = choose_augmentation(sample, stats.pairs, *sides, data.text.hallucination)
    decisions.extend([reason] if reason else [])
    return augmentation


def _record(
    chosen: TokenizerPair, facts: dict[str, Any], task: str, references: dict[str, list[str]]
) -> dict[str, Any]:
    """Store what a resumed run needs: `facts`, and the scores of the baselines."""
    data, split = chosen.data, chosen.split
    assert data.stats is not None
    sample = list(zip(data.stats.sources, data.stats.targets, strict=True))
    frequent = most_frequent_target(sample)
    baselines = score_baselines(task, references, frequent=frequent, pairs=sample)
    state = {**facts, "shared_vocabulary": chosen.source is chosen.target}
    state |= {"threshold": None if split is None else split.threshold}
    state |= {"fingerprint": data.fingerprint, "settings": data.settings}
    state |= {"frequent_target": frequent, "baselines": baselines}
    state["training_sources"] = TrainingSources.load(data.folder / TRAINING_SOURCES).checksum
    write_state(data.folder / STATE_FILE, {**state, "max_held_out": data.max_held_out})
    return state


def _load_sources(
    chosen: TokenizerPair, recorded: dict[str, Any], report: Callable[[str], None]
) -> TrainingSources:
    """The hashes of the training sources; damaged ones are made again. Older runs recorded no
    checksum."""
    data, split = chosen.data, chosen.split
    path, expected = data.folder / TRAINING_SOURCES, recorded.get("training_sources")
    if expected is None:
        return TrainingSources.load(path)
    with suppress(RegardError, OSError):
        if (found := TrainingSources.load(path)).checksum == expected:
            return found
    report(f"{str(path)!r} is damaged; reading the training sources again")
    collector = SourceCollector(data.text.split_seed)
    used = data.corpus if split is None else split.training_pairs(data.corpus)
    deque(collector.watch(used), maxlen=0)
    collector.sources().save(path)
    return collector.sources()


def _select_references(
    chosen: TokenizerPair, divided: DividedCorpus, max_held_out: int, decisions: list[str]
) -> dict[str, list[str]]:
    """The held-out sources within the length limit, with all their references."""
    max_tokens = chosen.data.text.max_tokens
    grouped = group_references(divided.held_out_pairs())
    references = sample_references(grouped, max_held_out)
    if not references:
        raise RegardError("the held-out set is empty; give one with pairs, or leave it out")
    used = {s: r for s, r in references.items() if len(chosen.source.encode(s)) <= max_tokens}
    if not used:
        limit = f"text.max_tokens = {max_tokens}"
        raise RegardError(f"all held-out sources are longer than {limit} tokens; raise it")
    if skipped := len(references) - len(used):
        what = f"held-out sources with more than {max_tokens} tokens"
        decisions.append(f"{skipped:,} {what} are skipped (text.max_tokens)")
    if len(used) < SMALL_HELD_OUT:
        decisions.append(
            f"warning: the held-out set has only {len(used):,} sources: a sequence error rate is "
            f"known to ± {98 / math.sqrt(len(used)):.0f} points (95 %, at worst); give more pairs, "
            "or a larger --held-out"
        )
    return used


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
