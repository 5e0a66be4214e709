"""Training of every kind of tokenizer from lines of text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from regard.errors import choose
from regard.text.corpus_stats import subsample
from regard.text.tags import NO_TAGS, TagCounter, TagSet, add_tags
from regard.text.tokenizers import (
    BYTE_TOKENS,
    SPECIAL_TOKENS,
    UNKNOWN,
    Tokenizer,
    TokenizerError,
    nfc,
    nfd,
)

MAX_SYMBOLS = 65_000  # default size of `characters` and `words`: ids fit in 16 bits
DEFAULT_SUBWORDS = 8_000  # default size of `bpe` and `unigram`
MAX_TOKEN_CHARACTERS = 24
MIN_TOKENS = {"characters": 1, "bytes": 256, "words": 1, "bpe": 257, "unigram": 257}
# Letters keep the space before them, punctuation forms words, and digits stand alone: any number is
# spelled with ten tokens, and no text can produce the name of a byte token.
WORD_PATTERN = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s"


@dataclass(frozen=True)
class TextForm:
    """How texts are written as tokens: characters composed (NFC) or decomposed (NFD), and the tags
    that are one token each, beside markup such as <2mod>."""

    decompose: bool = False
    tags: TagSet = NO_TAGS

    def normalise(self, text: str) -> str:
        """The text in its Unicode form."""
        return nfd(text) if self.decompose else nfc(text)

    @property
    def normaliser(self) -> Any:
        """The same as a part of the library."""
        return normalizers.NFD() if self.decompose else normalizers.NFC()

    def count_tags(self, markup: Sequence[str]) -> int:
        """The number of tokens that are tags."""
        return len({*markup, *self.tags.marks, *self.tags.fields})


def train_tokenizer(
    kind: str,
    lines: Iterable[str],
    *,
    size: int | None = None,
    form: TextForm | None = None,
) -> Tokenizer:
    """Train a tokenizer of a kind in TOKENIZERS with at most `size` ids, in one pass."""
    train = choose(TOKENIZERS, kind, "tokenizer")
    if isinstance(lines, str):
        raise TokenizerError(
            f"lines must be an iterable of lines, such as a list or an open file; got {lines!r:.40}"
        )
    minimum = len(SPECIAL_TOKENS) + MIN_TOKENS[kind]
    if size is not None and size < minimum:
        raise TokenizerError(f"a {kind} tokenizer needs a size of at least {minimum}; got {size}")
    return Tokenizer(train(lines, size, form or TextForm()))


def extend_tokenizer(tokenizer: Tokenizer, symbols: Iterable[str]) -> Tokenizer:
    """A `characters` or `words` tokenizer with more symbols; ids of the others do not change."""
    if tokenizer.kind not in ("characters", "words"):
        raise TokenizerError(f"a {tokenizer.kind} tokenizer cannot be extended; train a new one")
    document = json.loads(tokenizer.library.to_str())
    vocabulary = document["model"]["vocab"]
    for symbol in symbols:
        vocabulary.setdefault(symbol, len(vocabulary))
    return Tokenizer(Library.from_str(json.dumps(document)))


def train_characters(lines: Iterable[str], size: int | None, form: TextForm) -> Library:
    """Each character is a token."""
    texts = TagCounter(lines, form.tags)
    counts = _count(map(form.normalise, texts))
    markup = texts.markup()
    for tag in (*texts.counts, *form.tags.marks, *form.tags.fields):
        counts.update(form.normalise(tag))  # an unknown tag is spelled
    most = max((size or MAX_SYMBOLS) - form.count_tags(markup), len(SPECIAL_TOKENS) + 1)
    characters = _most_frequent(counts, most, "characters")
    library = _untrained(characters, form, byte_fallback=False, decoder=decoders.Fuse())
    return add_tags(library, markup, form.tags)


def train_bytes(lines: Iterable[str], size: int | None, form: TextForm) -> Library:
    """Each UTF-8 byte is a token; only tags are learned, and nothing is unknown."""
    texts = TagCounter(lines, form.tags)
    for _ in texts:
        pass
    return add_tags(_untrained(BYTE_TOKENS, form), texts.markup(), form.tags)


def train_words(lines: Iterable[str], size: int | None, form: TextForm) -> Library:
    """Each symbol between white space is a token, as in "HH AH0 L OW1"."""
    words = _most_frequent(_count(form.normalise(line).split() for line in lines), size, "words")
    library = Library(models.WordLevel(_vocabulary(words), unk_token=SPECIAL_TOKENS[UNKNOWN]))
    library.normalizer = form.normaliser
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return library


def train_bpe(lines: Iterable[str], size: int | None, form: TextForm) -> Library:
    """Byte-pair encoding of characters (Sennrich et al. 2016) with byte fallback."""
    texts = TagCounter(lines, form.tags)
    sample = _sample_text(texts, "bpe")
    markup = texts.markup()
    size = _trained_size("bpe", size, form.count_tags(markup))
    library = _untrained(BYTE_TOKENS, form, split_words=True)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL_TOKENS, *BYTE_TOKENS],
        limit_alphabet=_max_characters(size),
        min_frequency=2,
        max_token_length=MAX_TOKEN_CHARACTERS,
        show_progress=False,
    )
    library.train_from_iterator(sample, trainer)
    document = json.loads(library.to_str())
    document["added_tokens"] = []  # else the text "<0x0A>" would be read as a line feed
    return add_tags(Library.from_str(json.dumps(document)), markup, form.tags)


def train_unigram(lines: Iterable[str], size: int | None, form: TextForm) -> Library:
    """Unigram language model of subwords (Kudo 2018) with byte fallback.

    Unlike the other kinds it is not exactly reproducible: the library's order of summation varies.
    """
    texts = TagCounter(lines, form.tags)
    text = _sample_text(texts, "unigram")
    markup = texts.markup()
    size = _trained_size("unigram", size, form.count_tags(markup))
    # The library adds a token for every character, so the rarest ones are removed from the text.
    rare = _count(map(form.normalise, text)).most_common()[_max_characters(size) :]
    removed = str.maketrans({character: None for character, _ in rare})
    library = _untrained(BYTE_TOKENS, form, split_words=True)
    library.model = models.Unigram()
    trainer = trainers.UnigramTrainer(
        vocab_size=size - len(BYTE_TOKENS), unk_token=SPECIAL_TOKENS[0], show_progress=False
    )
    trainer.special_tokens = [*SPECIAL_TOKENS]
    frequent = (form.normalise(line).translate(removed) for line in text) if rare else text
    library.train_from_iterator(frequent, trainer)
    document = json.loads(library.to_str())
    document["added_tokens"] = []
    learned = document["model"]["vocab"][len(SPECIAL_TOKENS) :]
    subwords = sorted(learned, key=lambda entry: (-entry[1], entry[0]))
    fixed = [[name, subwords[-1][1]] for name in (*SPECIAL_TOKENS, *BYTE_TOKENS)]
    document["model"].update(vocab=fixed + subwords, byte_fallback=True)
    return add_tags(Library.from_str(json.dumps(document)), markup, form.tags)


TOKENIZERS: dict[str, Callable[[Iterable[str], int | None, TextForm], Library]] = {
    "characters": train_characters,
    "bytes": train_bytes,
    "words": train_words,
    "bpe": train_bpe,
    "unigram": train_unigram,
}


def _untrained(
    tokens: Iterable[str],
    form: TextForm,
    *,
    byte_fallback: bool = True,
    split_words: bool = False,
    decoder: Any = None,
) -> Library:
    """A BPE model without merges: over bytes it is `bytes`, over characters it is `characters`."""
    model = models.BPE(
        vocab=_vocabulary(tokens),
        merges=[],
        unk_token=SPECIAL_TOKENS[UNKNOWN],
        byte_fallback=byte_fallback,
        fuse_unk=False,
    )
    library = Library(model)
    library.normalizer = form.normaliser
    library.decoder = decoder or decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    if split_words:
        spaces = pre_tokenizers.Split(" ", "merged_with_next")
        words = pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([spaces, words])
    return library


def _vocabulary(tokens: Iterable[str]) -> dict[str, int]:
    return {token: id for id, token in enumerate([*SPECIAL_TOKENS, *tokens])}


def _most_frequent(counts: Counter[str], size: int | None, kind: str) -> list[str]:
    """The most frequent symbols that fit into the vocabulary."""
    if not counts:
        raise TokenizerError(f"no text to train {kind} on; give lines that are not empty")
    number = (size or MAX_SYMBOLS) - len(SPECIAL_TOKENS)
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[:number]


def _count(texts: Iterable[Iterable[str]]) -> Counter[str]:
    """Symbol counts in bounded memory: if there are too many, symbols seen once are dropped."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
        if len(counts) > 40 * MAX_SYMBOLS:
            counts = Counter({symbol: count for symbol, count in counts.items() if count > 1})
    return counts


def _sample_text(lines: Iterable[str], kind: str) -> list[str]:
    text = [line for line in subsample(lines) if line]
    if not text:
        raise TokenizerError(f"no text to train {kind} on; give lines that are not empty")
    return text


def _trained_size(kind: str, size: int | None, tags: int) -> int:
    """The number of tokens to train: those that tags leave."""
    return max((size or DEFAULT_SUBWORDS) - tags, len(SPECIAL_TOKENS) + MIN_TOKENS[kind])


def _max_characters(size: int) -> int:
    """The number of single-character tokens: at most half of the trained tokens."""
    return max(1, (size - len(SPECIAL_TOKENS) - len(BYTE_TOKENS)) // 2)
