"""Stage 2 of a run, choose: the tokenizers of both sides, trained or of a given bundle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from regard.errors import RegardError
from regard.text import (
    HeldOutSplit,
    Tokenizer,
    train_tokenizer,
)
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.text.tokenizers import TokenizerError
from regard.training.fine_tuning import adapt_tokenizer
from regard.training.raw_data import SIDES, RawData
from regard.training.tokenizer_plan import (
    align_decompositions,
    choose_shared,
    choose_side,
    merge_plans,
)

MAX_CHARACTERS = 20_000  # of a line, when tokenizers are trained: longer lines take minutes


@dataclass(frozen=True)
class TokenizerPair:
    """Result of `choose`: the tokenizers and special tokens of both sides, and the split of the
    corpus."""

    data: RawData
    source: Tokenizer
    target: Tokenizer
    split: HeldOutSplit | None
    decisions: list[str]
    template: Template = DEFAULT_TEMPLATE


def choose(data: RawData) -> TokenizerPair:
    """Stage 2: choose and train the tokenizers."""
    if data.recorded is not None:
        decisions = list(data.recorded["decisions"])
        shared, threshold = data.recorded["shared_vocabulary"], data.recorded["threshold"]
    else:
        assert data.stats is not None
        decisions = list(data.decisions)
        prepare = _train_tokenizers if data.tokenizers is None else _adapt_tokenizers
        shared = prepare(data, decisions)
        threshold = None if data.stats.split is None else data.stats.split.threshold
    source, target = (_load_tokenizer(data.folder, side) for side in SIDES)
    template, given = DEFAULT_TEMPLATE, data.tokenizers
    languages = data.text.source_language, data.text.target_language
    if given is not None:
        template = given.template
        if source.is_foreign:  # a model may have more ids than the file
            source = source.with_size(len(given.source))
        if target.is_foreign:
            target = target.with_size(len(given.target))
    template = template.for_languages(*languages)
    if data.text.target_order != "auto":
        order = data.text.target_order
        if given is not None and given.extensible and template.reversed != (order == "reversed"):
            raise RegardError(
                f"text.target_order = {order!r} differs from that of the initial model; "
                "leave it out"
            )
        template = replace(template, reversed=order == "reversed")
    template.check_sizes(len(source), len(source if shared else target))
    split = None if threshold is None else HeldOutSplit(data.text.split_seed, threshold)
    sides = source, source if shared else target
    return TokenizerPair(data, *sides, split, decisions, template)


def _adapt_tokenizers(data: RawData, decisions: list[str]) -> bool:
    """Save the given tokenizers, those of an initial model extended by new symbols; returns whether
    both sides share one."""
    assert data.tokenizers is not None
    assert data.stats is not None
    given, stats = data.tokenizers, data.stats
    sides = {"source": (given.source, stats.sources), "target": (given.target, stats.targets)}
    shared = given.source is given.target
    if shared:
        lines = [*stats.sources, *stats.targets]
        sides = {side: (tokenizer, lines) for side, (tokenizer, _) in sides.items()}
    for side, (tokenizer, lines) in sides.items():
        extend = data.text.extend_vocabulary and given.extensible
        adapted, reason = adapt_tokenizer(tokenizer, lines, side, extend=extend, role=given.role)
        adapted.save(_tokenizer_file(data.folder, side))
        decisions.append(reason)
    return shared


def _train_tokenizers(data: RawData, decisions: list[str]) -> bool:
    """Choose, train and save the tokenizers; returns whether both sides share one."""
    assert data.stats is not None
    stats, text = data.stats, data.text
    sides = {"source": _shorten(stats.sources), "target": _shorten(stats.targets)}
    if text.shared_vocabulary:
        plans = [choose_shared(text, sides, 2 * stats.pairs)] * 2
        decisions += plans[0].describe("both sides")
    else:
        plans = [choose_side(side, text, lines, stats.pairs) for side, lines in sides.items()]
        plans = align_decompositions(plans, text)
        for side, plan in zip(SIDES, plans, strict=True):
            decisions += plan.describe(side)
    if text.vocabulary_size and not any(plan.is_subword for plan in plans):
        kinds = " and ".join(dict.fromkeys(plan.kind for plan in plans))
        raise RegardError(
            f"text.vocabulary_size = {text.vocabulary_size} applies to bpe and unigram tokenizers, "
            f"and both sides are {kinds}; remove it"
        )
    shared = plans[0] if text.shared_vocabulary else None
    if text.shared_vocabulary is None:
        shared = merge_plans(plans)
    if shared is not None:
        decisions.append("one vocabulary for both sides")
        everything = [line for lines in sides.values() for line in lines]
        tokenizer = train_tokenizer(shared.kind, everything, size=shared.size, form=shared.form)
        for side in SIDES:
            tokenizer.save(_tokenizer_file(data.folder, side))
        return True
    for side, plan in zip(SIDES, plans, strict=True):
        tokenizer = train_tokenizer(plan.kind, sides[side], size=plan.size, form=plan.form)
        tokenizer.save(_tokenizer_file(data.folder, side))
    return False


def _shorten(lines: list[str]) -> list[str]:
    return [line[:MAX_CHARACTERS] for line in lines]


def _load_tokenizer(folder: Path, side: str) -> Tokenizer:
    """A tokenizer of the run, which no one else has a copy of."""
    path = _tokenizer_file(folder, side)
    try:
        return Tokenizer.load(path)
    except TokenizerError:
        what = f"{str(path)!r} is missing or damaged"
        raise RegardError(f"{what}; start over with --restart, or use another --out") from None


def _tokenizer_file(folder: Path, side: str) -> Path:
    return folder / f"{side}.tokenizer.json"
