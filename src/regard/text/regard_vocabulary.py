"""RegardVocabulary: the vocabularies that Regard trains, in which every text can be restored.

Three special tokens have the same ids in every vocabulary: 0 unknown, 1 begin, 2 end. There is no
padding token, because nothing is padded. In `bytes`, `bpe` and `unigram` the next 256 ids are the
bytes, so that a character without its own token is spelled in UTF-8. A tag such as <2mod> that
occurs in the training text is one token. The normaliser of the file says how characters are
spelled: composed (NFC), or decomposed (NFD) into letters, marks and jamo; outputs are composed.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as Library

from regard.text.vocabulary import Piece, TokenizerError, Vocabulary

UNKNOWN, BEGIN = 0, 1
END = 2
# Every kind splits text before a space, so no text can produce a name that contains one.
SPECIAL_TOKENS = ("< unknown >", "< begin >", "< end >")
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
FIRST_BYTE = len(SPECIAL_TOKENS)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SPLITTERS = (None, "WhitespaceSplit", "Split")  # the pre-tokenizers of Regard
NORMALISERS = ("NFC", "NFD")
# White space other than the plain space: no-break, narrow no-break, ideographic, of some width.
SPACES = "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# Marks of direction, joiners, byte-order mark, soft hyphen and variation selectors.
INVISIBLE = (
    "\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060"
    "\u2066\u2067\u2068\u2069\ufeff" + "".join(map(chr, range(0xFE00, 0xFE10)))
)


class RegardVocabulary(Vocabulary):
    """NFC or NFD normalisation, then the tokens of its kind."""

    unknown = UNKNOWN

    def __init__(self, library: Library, document: dict[str, Any]) -> None:
        self.library = library
        self.kind = _infer_kind(document)
        _check_structure(library, document)
        self.decomposed = document["normalizer"]["type"] == "NFD"

    def __len__(self) -> int:
        return int(self.library.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The ids of a text. In `characters`, a space that the vocabulary lacks is read as a plain
        one, and an invisible character that it lacks is left out."""
        if not text.isascii() and self._replaced:
            text = text.translate(self._replaced)
        return super().encode(text)

    def _normalise(self, text: str) -> str:
        return str(self.library.normalizer.normalize_str(text.translate(self._replaced)))

    @cached_property
    def _replaced(self) -> dict[int, str | None]:
        """What stands for spaces and invisible characters that have no token."""
        if self.kind != "characters":
            return {}  # others spell them, or split at every white space
        known = self.library.get_vocab()
        plain = " " if " " in known else None
        spaces = {ord(one): plain for one in SPACES if plain and nfc(one) not in known}
        return spaces | {ord(one): None for one in INVISIBLE if one not in known}

    def token(self, id: int) -> str:
        """The name of a token in the file."""
        return str(self.library.id_to_token(id))

    def decode(self, ids: Sequence[int]) -> str:
        """The composed text of ids; `words` are joined by single spaces."""
        text = self._join(self._spell(ids))
        return nfc(text) if self.decomposed else text

    def _join(self, spellings: Sequence[bytes]) -> str:
        if self.kind == "words":
            return b" ".join(filter(None, spellings)).decode()
        return b"".join(spellings).decode(errors="replace")

    def pieces(self, text: str, ids: Sequence[int]) -> list[Piece]:
        """The tokens of a text with their spans in the original (not NFC) text."""
        normal, origin = self._normalise(text), source_spans(text, self._normalise)
        if self.kind == "words":
            spans = list(self.library.encode(normal, add_special_tokens=False).offsets)
        else:
            spans = self._spans(self._spell(ids))
        return [
            Piece(
                normal[a:b] if id == UNKNOWN else self.label(id), id, origin[a][0], origin[b - 1][1]
            )
            for id, (a, b) in zip(ids, spans, strict=True)
        ]

    def decode_pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The tokens of ids with their spans in `decode(ids)`; those of begin and end are empty.
        Letters, marks and jamo of one composed character share its span."""
        spellings = self._spell(ids)
        text = self._join(spellings)
        if self.kind == "words":
            words = [i for i, spelling in enumerate(spellings) if spelling]
            for i in words[1:]:
                spellings[i] = b" " + spellings[i]
            spans = [(a + (b > a and a > 0), b) for a, b in self._spans(spellings)]
        else:
            spans = self._spans(spellings)
        if self.decomposed:
            spans = _compose_spans(spans, text)
        return [Piece(self.label(id), id, a, b) for id, (a, b) in zip(ids, spans, strict=True)]

    def label(self, id: int) -> str:
        """The printable form of a token; a byte that is not a character is written as <0xE2>."""
        spelling = self._spell([id])[0]
        if id < len(SPECIAL_TOKENS):
            return SPECIAL_TOKENS[id]
        try:
            return spelling.decode()
        except UnicodeDecodeError:
            return BYTE_TOKENS[spelling[0]]

    @cached_property
    def _spellings(self) -> list[bytes]:
        """The UTF-8 bytes of each id."""
        spellings = [self.token(id).encode() for id in range(len(self))]
        spellings[: len(SPECIAL_TOKENS)] = [REPLACEMENT.encode(), b"", b""]
        if self.kind in ("bytes", "bpe", "unigram"):
            spellings[FIRST_BYTE : FIRST_BYTE + 256] = [bytes([byte]) for byte in range(256)]
        return spellings

    def _spell(self, ids: Iterable[int]) -> list[bytes]:
        return [self._spellings[id] for id in self.check(ids)]

    @staticmethod
    def _spans(spellings: Sequence[bytes]) -> list[tuple[int, int]]:
        """The characters each token has bytes of; byte tokens may share one character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        spans, done = [], 0
        for spelling in spellings:
            start, done = done, done + len(decoder.decode(spelling))
            spans.append((start, done + bool(decoder.getstate()[0]) if spelling else start))
        return spans


def is_regard_vocabulary(library: Library) -> bool:
    """Whether the first ids are Regard's special tokens."""
    return all(library.token_to_id(token) == id for id, token in enumerate(SPECIAL_TOKENS))


def _infer_kind(document: dict[str, Any]) -> str:
    """The kind of a tokenizer from its structure; the file format has no field for it."""
    model = document["model"]
    if model["type"] != "BPE":
        return "words" if model["type"] == "WordLevel" else "unigram"
    if not model["byte_fallback"]:
        return "characters"
    tags = len(document["added_tokens"])
    return "bpe" if len(model["vocab"]) - tags > FIRST_BYTE + 256 else "bytes"


def _check_structure(library: Library, document: dict[str, Any]) -> None:
    """Raise unless ids are numbered without gaps and texts can be restored, as Regard writes it."""
    ids = library.get_vocab(with_added_tokens=True).values()
    model, tags = document["model"], document.get("added_tokens") or []
    odd = [name for name in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(name)]
    if odd or len({*ids}) != len(ids) or max(ids) != len(ids) - 1:
        raise TokenizerError(f"it has {odd[0] if odd else 'ids with gaps or twice'}")
    if (document.get("normalizer") or {}).get("type") not in NORMALISERS:
        raise TokenizerError("parts of it are missing or altered: it does not normalise to NFC")
    splitter = document.get("pre_tokenizer") or {"type": None}
    parts = splitter.get("pretokenizers", []) if splitter["type"] == "Sequence" else [splitter]
    if any(part.get("type") not in SPLITTERS for part in parts):
        raise TokenizerError("it splits texts in another way than Regard does")
    if any(tag["special"] or not tag["content"] for tag in tags):
        raise TokenizerError("it has special tokens that Regard does not write")


def nfc(text: str) -> str:
    """The text in Unicode's composed form: e + ◌́ becomes é (Unicode Standard Annex 15)."""
    return unicodedata.normalize("NFC", text)


def nfd(text: str) -> str:
    """The text in Unicode's decomposed form: é becomes e + ◌́, 한 becomes three jamo."""
    return unicodedata.normalize("NFD", text)


def source_spans(text: str, normalise: Callable[[str], str] = nfc) -> list[tuple[int, int]]:
    """For each character of `normalise(text)`, the span (start, end) of `text` it comes from.

    The text is split wherever both sides normalise independently; all characters of a segment that
    normalisation changes share its span.
    """
    spans: list[tuple[int, int]] = []
    for start, end in [(0, len(text))] if normalise(text) == text else _segments(text, normalise):
        part = normalise(text[start:end])
        if part == text[start:end]:
            spans += [(i, i + 1) for i in range(start, end)]
        else:
            spans += [(start, end)] * len(part)
    return spans


def _compose_spans(spans: Sequence[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Spans of a decomposed text as spans of the composed text; empty ones stay empty."""
    starts, ends = [], []  # of the composed segment of each character
    done = 0
    for start, end in _segments(text, nfc):
        length = len(nfc(text[start:end]))
        whole = length == end - start  # nothing was composed: one character for each
        for i in range(end - start):
            starts.append(done + i * whole)
            ends.append(done + i + 1 if whole else done + length)
        done += length
    starts.append(done)
    return [(starts[a], ends[b - 1] if b > a else starts[a]) for a, b in spans]


def _segments(text: str, normalise: Callable[[str], str]) -> Iterator[tuple[int, int]]:
    """The smallest parts of a text that normalise independently of each other."""
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or _is_boundary(text[start:end], text[end], normalise):
            yield start, end
            start = end


def _is_boundary(before: str, character: str, normalise: Callable[[str], str]) -> bool:
    """Whether `character` neither combines with `before` nor is reordered with its marks."""
    if unicodedata.combining(character):
        return False
    return normalise(before + character) == normalise(before) + normalise(character)
