"""The tokenizer of one side, decided before it is trained: kind, size, decomposition and tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regard.config import TextSettings
from regard.text import choose_tokenizer, default_vocabulary_size
from regard.text.decomposition import Decomposition, choose_decomposition
from regard.text.tag_detection import detect_tags
from regard.text.tags import NO_TAGS, TagSet
from regard.text.tokenizer_training import TextForm

SUBWORDS = ("bpe", "unigram")


@dataclass(frozen=True)
class TokenizerPlan:
    """The decisions for one side, each with its reason."""

    kind: str
    size: int | None
    form: TextForm
    reason: str
    decomposition: Decomposition

    @property
    def is_subword(self) -> bool:
        """Whether tokens are subwords."""
        return self.kind in SUBWORDS

    def describe(self, side: str) -> list[str]:
        """The decisions in sentences; `side` is "source", "target" or "both sides"."""
        name = f"tokenizer of {side}" if side == "both sides" else f"{side} tokenizer"
        found = [f"{name}: {self.reason}"]
        if self.form.tags:
            found.append(f"{side} tags: {self.form.tags.reason}")
        if self.form.decompose:
            found.append(f"{side} characters decomposed: {self.decomposition.reason}")
        return found


def choose_shared(
    text: TextSettings, sides: Mapping[str, Sequence[str]], total: int
) -> TokenizerPlan:
    """Decide one tokenizer for both sides, from the lines of both."""
    requested = text.source_tokenizer
    requested = requested if requested != "auto" else text.target_tokenizer
    tags = NO_TAGS
    for side, lines in sides.items():
        tags |= detect_tags(lines, getattr(text, f"{side}_tags"))
    everything = [line for lines in sides.values() for line in lines]
    return _choose("source", requested, text, everything, total, tags)


def choose_side(side: str, text: TextSettings, lines: Sequence[str], total: int) -> TokenizerPlan:
    """Decide the tokenizer of one side from its training lines."""
    tags = detect_tags(lines, getattr(text, f"{side}_tags"))
    return _choose(side, getattr(text, f"{side}_tokenizer"), text, lines, total, tags)


def merge_plans(plans: Sequence[TokenizerPlan]) -> TokenizerPlan | None:
    """One plan for both sides if they are subwords of the same size, with the tags of both."""
    source, target = plans
    if not source.is_subword or (source.kind, source.size) != (target.kind, target.size):
        return None
    if source.form.decompose != target.form.decompose:
        return None
    tags = source.form.tags | target.form.tags
    return replace(source, form=replace(source.form, tags=tags))


def _choose(
    side: str, requested: str, text: TextSettings, lines: Sequence[str], total: int, tags: TagSet
) -> TokenizerPlan:
    """Decide the tokenizer for lines with these tags; the kind is `requested`."""
    if requested == "auto":
        choice = choose_tokenizer(lines, total=total, tags=tags)
        kind, size, reason = choice.kind, choice.size, choice.reason
    else:
        kind, reason = requested, f"{requested}: as requested"
        size = default_vocabulary_size(requested, lines, total=total)
    if kind in SUBWORDS and text.vocabulary_size:
        size = text.vocabulary_size
    decomposition = choose_decomposition(
        lines, getattr(text, f"{side}_decomposition"), kind=kind, tags=tags
    )
    form = TextForm(decomposition.decompose, tags if kind != "words" else NO_TAGS)
    return TokenizerPlan(kind, size, form, reason, decomposition)


def align_decompositions(plans: Sequence[TokenizerPlan], text: TextSettings) -> list[TokenizerPlan]:
    """Both sides decomposed if one of them is and they share composed characters: a model that
    copies é must find the same tokens on both sides."""
    shared = plans[0].decomposition.composed & plans[1].decomposition.composed
    decompose = any(plan.form.decompose for plan in plans)
    wanted = text.source_decomposition, text.target_decomposition
    aligned = []
    for plan, setting in zip(plans, wanted, strict=True):
        if setting == "auto" and decompose and shared and not plan.form.decompose:
            reason = f"as the other side; {plan.decomposition.reason}"
            plan = replace(
                plan,
                form=replace(plan.form, decompose=True),
                decomposition=replace(plan.decomposition, decompose=True, reason=reason),
            )
        aligned.append(plan)
    return aligned
