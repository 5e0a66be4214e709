"""Fine-tuning: start a run from the weights or only the tokenizers of an existing bundle."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import bundle
from regard.bundle import MANIFEST, locate
from regard.bundle.model_files import unique_parameters
from regard.errors import RegardError
from regard.models import Model
from regard.text import Tokenizer
from regard.text.foreign_templates import load_foreign
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.text.tokenizer_training import extend_tokenizer
from regard.text.tokenizers import nfc, nfd

# Phone error rate on names, for dictionary models of 19.0 and 21.2 % tuned on 2,000 names: factor
# 0.04 gives 15.3 and 16.9, 0.12 gives 14.8 and 16.3, 0.4 gives 14.5 and 15.6 (10 epochs; 40 epochs
# are not better). Where the new data resemble the old, a factor of 0.3 was too large; the run then
# returns the initial model.
RATE_FACTOR = 0.3  # of the default learning rate
FINE_TUNING_EPOCHS = 10.0
MAX_SHOWN = 20  # new symbols listed in a message
INITIAL_MODEL = "initial model"


@dataclass(frozen=True, eq=False)
class GivenTokenizers:
    """Existing tokenizers with their special tokens, which a run uses instead of training its own.

    `role` is what messages call them. Only an initial model's tokenizers may be extended.
    """

    source: Tokenizer
    target: Tokenizer
    fingerprint: str
    role: str = "given bundle"
    template: Template = DEFAULT_TEMPLATE

    @classmethod
    def load(cls, folder: Path) -> GivenTokenizers:
        """Load the tokenizers of a bundle, without its weights."""
        contents = bundle.read(folder)
        sides, template = (contents.source, contents.target), contents.template
        return cls(*sides, _fingerprint(folder), template=template)

    @classmethod
    def from_file(cls, path: Path) -> GivenTokenizers:
        """Load one tokenizer.json, or that of a folder, for both sides."""
        tokenizer, template = load_foreign(path)
        return cls(tokenizer, tokenizer, tokenizer.fingerprint, "given tokenizer", template)

    @property
    def extensible(self) -> bool:
        """Whether new symbols may be added."""
        return self.role == INITIAL_MODEL


@dataclass(frozen=True, eq=False)
class InitialModel:
    """The bundle that a run starts from, and its identity."""

    bundle: bundle.Bundle
    name: str
    fingerprint: str

    @classmethod
    def load(cls, folder: Path) -> InitialModel:
        """Load a bundle; raises for an ensemble."""
        if bundle.read(folder).raw_settings.get("kind") == "ensemble":
            raise RegardError(f"{str(folder)!r} is an ensemble; fine-tune one of its seeds")
        return cls(bundle.load(folder), str(folder), _fingerprint(folder))

    @property
    def tokenizers(self) -> GivenTokenizers:
        """The tokenizers of the bundle."""
        sides = self.bundle.source, self.bundle.target
        return GivenTokenizers(*sides, self.fingerprint, INITIAL_MODEL, self.bundle.template)

    @property
    def model_settings(self) -> dict[str, Any]:
        """All settings of the model."""
        return self.bundle.settings.model_dump()

    def copy_to(self, model: Model) -> None:
        """Copy all weights. Rows of new symbols, at the end of a table, keep their own."""
        weights = unique_parameters(self.bundle.model)
        with torch.no_grad():
            for name, parameter in unique_parameters(model).items():
                stored = weights.get(name)
                rows = None if stored is None else stored.shape[0]
                fits = stored is not None and stored.shape[1:] == parameter.shape[1:]
                if stored is None or rows is None or not fits or rows > parameter.shape[0]:
                    raise RegardError(
                        f"the model does not match {self.name!r}: {name!r} differs; leave out "
                        "settings of the model's family and size"
                    )
                parameter[:rows] = stored


def fine_tuning_batch(tokens: int, usual: int) -> int:
    """Tokens of a batch: small enough for about 50 updates in each epoch."""
    return min(usual, max(512, tokens // 50))


def adapt_tokenizer(
    tokenizer: Tokenizer,
    lines: Iterable[str],
    side: str,
    *,
    extend: bool,
    role: str = INITIAL_MODEL,
) -> tuple[Tokenizer, str]:
    """The tokenizer for new data, and its coverage in a sentence.

    `characters` and `words` get a token for each new symbol if `extend`; `bytes`, `bpe` and
    `unigram` spell any text already.
    """
    if tokenizer.is_foreign:
        return tokenizer, f"{side} tokenizer: of the {role}, {len(tokenizer):,} ids"
    if tokenizer.kind not in ("characters", "words"):
        return tokenizer, f"{side} tokenizer: {tokenizer.kind} of the {role}, spells any text"
    normalise = nfd if tokenizer.is_decomposed else nfc
    split = str.split if tokenizer.kind == "words" else list
    counts = Counter(symbol for line in lines for symbol in split(normalise(line)))
    vocabulary = tokenizer.library.get_vocab()
    new = sorted((s for s in counts if s not in vocabulary), key=lambda s: (-counts[s], s))
    used, unknown = counts.total(), sum(counts[symbol] for symbol in new)
    coverage = f"covers {100 * (used - unknown) / max(1, used):.2f} % of the {tokenizer.kind}"
    reason = f"{side} tokenizer: {tokenizer.kind} of the {role}, {coverage}"
    if not new:
        return tokenizer, reason
    shown = " ".join(new[:MAX_SHOWN]) + (" …" if len(new) > MAX_SHOWN else "")
    if not extend:
        return tokenizer, f"{reason}; {len(new):,} stay unknown: {shown}"
    return extend_tokenizer(tokenizer, new), f"{reason}; {len(new):,} new ones are added: {shown}"


def _fingerprint(folder: Path) -> str:
    return hashlib.sha256((locate(folder) / MANIFEST).read_bytes()).hexdigest()


def freeze_parameters(model: nn.Module, patterns: Iterable[str]) -> int:
    """Exclude the parameters whose names match a pattern from training; returns their number."""
    names = dict(model.named_parameters())
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            groups = ", ".join(sorted({f"{name.split('.')[0]}.*" for name in names}))
            raise RegardError(f"--freeze {pattern!r} matches no parameter; choose from {groups}")
        for name in matching:
            names[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in names.values()):
        raise RegardError("--freeze leaves nothing to train; leave out a pattern")
    return sum(p.numel() for p in names.values() if not p.requires_grad)
