"""How each kind of tokeniser is learned from lines of text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from regard.errors import choose
from regard.text.reservoir import thinned
from regard.text.tokenizers import BYTES, SYMBOLS, UNKNOWN, Tokenizer, TokenizerError
from regard.text.unicode import nfc

MOST_SYMBOLS = 65_000  # of `characters` and `words` when no size is given: ids stay within 16 bits
PIECES = 8_000  # of `bpe` and `unigram` when no size is given
LONGEST_PIECE = 24
LEAST = {"characters": 1, "bytes": 256, "words": 1, "bpe": 257, "unigram": 257}
# Letters keep the space before them; a run of signs is a word; digits stand alone, so that any number is spelt from ten
# (and so that no text can spell the name of a byte).
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s"


def train_tokenizer(kind: str, lines: Iterable[str], *, size: int | None = None) -> Tokenizer:
    """A tokeniser of a kind in TOKENIZERS with at most `size` ids, learned from lines of text in one pass."""
    learn = choose(TOKENIZERS, kind, "tokeniser")
    if isinstance(lines, str):
        raise TokenizerError(f"lines of text are needed, in a list or a file that is open; got the text {lines!r:.40}")
    least = len(SYMBOLS) + LEAST[kind]
    if size is not None and size < least:
        raise TokenizerError(f"a {kind} tokeniser needs a size of at least {least}; got {size}")
    return Tokenizer(learn(lines, size))


def characters(lines: Iterable[str], size: int | None) -> Library:
    """Every character is a token."""
    frequent = _frequent(_count(nfc(line) for line in lines), size, "characters")
    return _library(frequent, byte_fallback=False, decoder=decoders.Fuse())


def byte(lines: Iterable[str], size: int | None) -> Library:
    """Every byte of the UTF-8 is a token; there is nothing to learn and nothing unknown."""
    return _library(BYTES)


def words(lines: Iterable[str], size: int | None) -> Library:
    """Symbols that stand between white space, as in "HH AH0 L OW1"; one each."""
    frequent = _frequent(_count(nfc(line).split() for line in lines), size, "words")
    library = Library(models.WordLevel(_numbered(frequent), unk_token=SYMBOLS[UNKNOWN]))
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return library


def bpe(lines: Iterable[str], size: int | None) -> Library:
    """Byte-pair encoding (Sennrich et al. 2016) of characters; those without a piece are spelt in bytes."""
    size = size or PIECES
    library = _library(BYTES, cut=True)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*SYMBOLS, *BYTES],
        limit_alphabet=_alphabet(size),
        min_frequency=2,
        max_token_length=LONGEST_PIECE,
        show_progress=False,
    )
    library.train_from_iterator(_text(lines, "bpe"), trainer)
    document = json.loads(library.to_str())
    document["added_tokens"] = []  # else a text that spells "<0x0A>" would be read as a line feed
    return Library.from_str(json.dumps(document))


def unigram(lines: Iterable[str], size: int | None) -> Library:
    """A unigram language model of pieces (Kudo 2018); characters without a piece are spelt in bytes.

    Unlike the others it is not learned alike to the last digit each time: the library sums in no fixed order.
    """
    size = size or PIECES
    text = _text(lines, "unigram")
    # The library insists on a piece for every character it sees, so it is not shown the rarest.
    rare = _count(map(nfc, text)).most_common()[_alphabet(size) :]
    missing = str.maketrans({character: None for character, _ in rare})
    library = _library(BYTES, cut=True)
    library.model = models.Unigram()
    trainer = trainers.UnigramTrainer(vocab_size=size - len(BYTES), unk_token=SYMBOLS[0], show_progress=False)
    trainer.special_tokens = [*SYMBOLS]
    library.train_from_iterator((nfc(line).translate(missing) for line in text) if rare else text, trainer)
    document = json.loads(library.to_str())
    document["added_tokens"] = []
    pieces = sorted(document["model"]["vocab"][len(SYMBOLS) :], key=lambda piece: (-piece[1], piece[0]))
    fixed = [[name, pieces[-1][1]] for name in (*SYMBOLS, *BYTES)]
    document["model"].update(vocab=fixed + pieces, byte_fallback=True)
    return Library.from_str(json.dumps(document))


TOKENIZERS: dict[str, Callable[[Iterable[str], int | None], Library]] = {
    "characters": characters,
    "bytes": byte,
    "words": words,
    "bpe": bpe,
    "unigram": unigram,
}


def _library(pieces: Iterable[str], *, byte_fallback: bool = True, cut: bool = False, decoder: Any = None) -> Library:
    """A byte-pair model before its first merge: of bytes it is `bytes`, of characters it is `characters`."""
    model = models.BPE(
        vocab=_numbered(pieces), merges=[], unk_token=SYMBOLS[UNKNOWN], byte_fallback=byte_fallback, fuse_unk=False
    )
    library = Library(model)
    library.normalizer = normalizers.NFC()
    library.decoder = decoder or decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    if cut:
        space = pre_tokenizers.Split(" ", "merged_with_next")
        library.pre_tokenizer = pre_tokenizers.Sequence([space, pre_tokenizers.Split(Regex(WORDS), "isolated")])
    return library


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: id for id, piece in enumerate([*SYMBOLS, *pieces])}


def _frequent(counts: Counter[str], size: int | None, kind: str) -> list[str]:
    """The most frequent symbols that there is room for."""
    if not counts:
        raise TokenizerError(f"no text to learn {kind} from; give lines that are not empty")
    room = (size or MOST_SYMBOLS) - len(SYMBOLS)
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[:room]


def _count(texts: Iterable[Iterable[str]]) -> Counter[str]:
    """How often each symbol stands in the texts, in bounded memory: of too many, those seen once are forgotten."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
        if len(counts) > 40 * MOST_SYMBOLS:
            counts = Counter({symbol: count for symbol, count in counts.items() if count > 1})
    return counts


def _text(lines: Iterable[str], kind: str) -> list[str]:
    text = [line for line in thinned(lines) if line]
    if not text:
        raise TokenizerError(f"no text to learn {kind} from; give lines that are not empty")
    return text


def _alphabet(size: int) -> int:
    """At most half of the room for learned pieces goes to single characters."""
    return max(1, (size - len(SYMBOLS) - len(BYTES)) // 2)
