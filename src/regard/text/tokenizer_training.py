"""Training of every kind of tokenizer from lines of text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from regard.errors import choose
from regard.text.corpus_stats import subsample
from regard.text.tokenizers import (
    BYTE_TOKENS,
    SPECIAL_TOKENS,
    UNKNOWN,
    Tokenizer,
    TokenizerError,
    nfc,
)

MAX_SYMBOLS = 65_000  # default size of `characters` and `words`: ids fit in 16 bits
DEFAULT_SUBWORDS = 8_000  # default size of `bpe` and `unigram`
MAX_TOKEN_CHARACTERS = 24
MIN_TOKENS = {"characters": 1, "bytes": 256, "words": 1, "bpe": 257, "unigram": 257}
# Letters keep the space before them, punctuation forms words, and digits stand alone: any number is
# spelled with ten tokens, and no text can produce the name of a byte token.
# A tag is one token: <2mod>, </b>, <lang:sv>. A byte token's name is not a tag.
TAG = re.compile(r"</?(?!0x[0-9A-F]{2}>)[A-Za-z0-9][\w:.=-]{0,40}/?>")
MAX_TAGS = 1_000
WORD_PATTERN = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s"


def train_tokenizer(kind: str, lines: Iterable[str], *, size: int | None = None) -> Tokenizer:
    """Train a tokenizer of a kind in TOKENIZERS with at most `size` ids, in one pass."""
    train = choose(TOKENIZERS, kind, "tokenizer")
    if isinstance(lines, str):
        raise TokenizerError(
            f"lines must be an iterable of lines, such as a list or an open file; got {lines!r:.40}"
        )
    minimum = len(SPECIAL_TOKENS) + MIN_TOKENS[kind]
    if size is not None and size < minimum:
        raise TokenizerError(f"a {kind} tokenizer needs a size of at least {minimum}; got {size}")
    return Tokenizer(train(lines, size))


def extend_tokenizer(tokenizer: Tokenizer, symbols: Iterable[str]) -> Tokenizer:
    """A `characters` or `words` tokenizer with more symbols; ids of the others do not change."""
    if tokenizer.kind not in ("characters", "words"):
        raise TokenizerError(f"a {tokenizer.kind} tokenizer cannot be extended; train a new one")
    document = json.loads(tokenizer.library.to_str())
    vocabulary = document["model"]["vocab"]
    for symbol in symbols:
        vocabulary.setdefault(symbol, len(vocabulary))
    return Tokenizer(Library.from_str(json.dumps(document)))


class TagCounter:
    """Lines split at their tags, which are counted meanwhile."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if "<" not in line:
                yield line
                continue
            self.counts.update(TAG.findall(nfc(line)))
            yield from filter(None, TAG.split(nfc(line)))

    def tags(self) -> list[str]:
        """The most frequent tags."""
        counts = self.counts
        return sorted(counts, key=lambda tag: (-counts[tag], tag))[:MAX_TAGS]


def strip_tags(line: str) -> str:
    """The line without its tags."""
    return TAG.sub("", line).strip() if "<" in line else line


def train_characters(lines: Iterable[str], size: int | None) -> Library:
    """Each character is a token."""
    texts = TagCounter(lines)
    counts = _count(map(nfc, texts))
    tags = texts.tags()
    counts.update("".join(texts.counts))  # an unknown tag is spelled
    most = max((size or MAX_SYMBOLS) - len(tags), len(SPECIAL_TOKENS) + 1)
    characters = _most_frequent(counts, most, "characters")
    library = _untrained(characters, byte_fallback=False, decoder=decoders.Fuse())
    return _add_tags(library, tags)


def train_bytes(lines: Iterable[str], size: int | None) -> Library:
    """Each UTF-8 byte is a token; only tags are learned, and nothing is unknown."""
    texts = TagCounter(lines)
    for _ in texts:
        pass
    return _add_tags(_untrained(BYTE_TOKENS), texts.tags())


def train_words(lines: Iterable[str], size: int | None) -> Library:
    """Each symbol between white space is a token, as in "HH AH0 L OW1"."""
    words = _most_frequent(_count(nfc(line).split() for line in lines), size, "words")
    library = Library(models.WordLevel(_vocabulary(words), unk_token=SPECIAL_TOKENS[UNKNOWN]))
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return library


def train_bpe(lines: Iterable[str], size: int | None) -> Library:
    """Byte-pair encoding of characters (Sennrich et al. 2016) with byte fallback."""
    texts = TagCounter(lines)
    sample = _sample_text(texts, "bpe")
    tags = texts.tags()
    size = max((size or DEFAULT_SUBWORDS) - len(tags), len(SPECIAL_TOKENS) + MIN_TOKENS["bpe"])
    library = _untrained(BYTE_TOKENS, split_words=True)
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
    return _add_tags(Library.from_str(json.dumps(document)), tags)


def train_unigram(lines: Iterable[str], size: int | None) -> Library:
    """Unigram language model of subwords (Kudo 2018) with byte fallback.

    Unlike the other kinds it is not exactly reproducible: the library's order of summation varies.
    """
    texts = TagCounter(lines)
    text = _sample_text(texts, "unigram")
    tags = texts.tags()
    size = max((size or DEFAULT_SUBWORDS) - len(tags), len(SPECIAL_TOKENS) + MIN_TOKENS["unigram"])
    # The library adds a token for every character, so the rarest ones are removed from the text.
    rare = _count(map(nfc, text)).most_common()[_max_characters(size) :]
    removed = str.maketrans({character: None for character, _ in rare})
    library = _untrained(BYTE_TOKENS, split_words=True)
    library.model = models.Unigram()
    trainer = trainers.UnigramTrainer(
        vocab_size=size - len(BYTE_TOKENS), unk_token=SPECIAL_TOKENS[0], show_progress=False
    )
    trainer.special_tokens = [*SPECIAL_TOKENS]
    frequent = (nfc(line).translate(removed) for line in text) if rare else text
    library.train_from_iterator(frequent, trainer)
    document = json.loads(library.to_str())
    document["added_tokens"] = []
    learned = document["model"]["vocab"][len(SPECIAL_TOKENS) :]
    subwords = sorted(learned, key=lambda entry: (-entry[1], entry[0]))
    fixed = [[name, subwords[-1][1]] for name in (*SPECIAL_TOKENS, *BYTE_TOKENS)]
    document["model"].update(vocab=fixed + subwords, byte_fallback=True)
    return _add_tags(Library.from_str(json.dumps(document)), tags)


TOKENIZERS: dict[str, Callable[[Iterable[str], int | None], Library]] = {
    "characters": train_characters,
    "bytes": train_bytes,
    "words": train_words,
    "bpe": train_bpe,
    "unigram": train_unigram,
}


def _untrained(
    tokens: Iterable[str],
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
    library.normalizer = normalizers.NFC()
    library.decoder = decoder or decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    if split_words:
        spaces = pre_tokenizers.Split(" ", "merged_with_next")
        words = pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([spaces, words])
    return library


def _add_tags(library: Library, tags: Sequence[str]) -> Library:
    """Make each tag one token, wherever it occurs in a text."""
    if not tags:
        return library
    document = json.loads(library.to_str())
    vocabulary = document["model"]["vocab"]
    if isinstance(vocabulary, list):  # of a unigram model: tokens with log-probabilities
        vocabulary += [[tag, vocabulary[-1][1]] for tag in tags]
    else:
        vocabulary |= {tag: len(vocabulary) + i for i, tag in enumerate(tags)}
    library = Library.from_str(json.dumps(document))
    library.add_tokens([AddedToken(tag, normalized=True, special=False) for tag in tags])
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


def _max_characters(size: int) -> int:
    """The number of single-character tokens: at most half of the trained tokens."""
    return max(1, (size - len(SPECIAL_TOKENS) - len(BYTE_TOKENS)) // 2)
