"""Character encoding of a text file: a byte-order mark, valid UTF-8, or the best guess.

UTF-8 is only validated. Other encodings are guessed from the lines that are not ASCII: an encoding
is plausible if its letters belong to the alphabet of one language. If two encodings are equally
plausible and read the file differently, the user decides. charset-normalizer guesses the rest;
on word lists it is not reliable enough alone (it takes Russian in Windows-1251 for Korean).
"""

from __future__ import annotations

import codecs
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from regard.text.files import (
    BUFFER_BYTES,
    READ_ERRORS,
    UTF8,
    UTF8_BOM,
    CorpusError,
    File,
    decompress,
    report_damage,
)
from regard.text.multibyte_encodings import ask_charset_normalizer, guess_east_asian
from regard.text.writing_systems import ENCODING_LANGUAGES

SCAN_BYTES = 1 << 28  # validated as UTF-8 before reading; later bad lines are reported one by one
SAMPLE_BYTES = 1 << 16
PLAUSIBLE = 0.75
RARE = 0.7  # weight of a rare letter
CLEAR = 0.03  # by which the best guess must exceed the next one
FEW = 2  # lines, from which no encoding can be guessed with confidence
BOMS = {  # the longer ones first: UTF-32 begins like UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
NAMES = {
    "cp1252": "Windows-1252",
    "cp1250": "Windows-1250",
    "cp1251": "Windows-1251",
    "cp1253": "Windows-1253",
    "cp1254": "Windows-1254",
    "cp1257": "Windows-1257",
    "mac_roman": "Mac Roman",
    "mac_latin2": "Mac Central European",
    "mac_cyrillic": "Mac Cyrillic",
    "iso8859_2": "Latin-2",
    "koi8_r": "KOI8-R",
    "cp850": "DOS (code page 850)",
    "cp866": "DOS Cyrillic (code page 866)",
    "cp932": "Shift JIS",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
}
UNUSUAL = {"cp850", "cp866", "mac_latin2", "mac_cyrillic"}  # files of old systems
INNER = "’‘·\N{SOFT HYPHEN}"  # punctuation that occurs between letters
TYPOGRAPHY = set("’‘“”„‚–—…«»‹›°§€£¥©®™·•¿¡´¨\N{NO-BREAK SPACE}½¼¾²³×ªº" + INNER)


@dataclass
class EncodingScan:
    """What a pass over the bytes found: lines that are not ASCII, valid UTF-8 or not."""

    valid: int = 0
    invalid: int = 0
    sample: list[bytes] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        """Count one line that is not ASCII."""
        try:
            line.decode()
            self.valid += 1
        except UnicodeDecodeError:
            self.invalid += 1
            if sum(map(len, self.sample)) < SAMPLE_BYTES:
                self.sample.append(line[:SAMPLE_BYTES])


def detect_encoding(file: File, requested: str | None = None) -> str:
    """Set the encoding of a file; returns the choice and its reason, empty for plain UTF-8."""
    with (
        file.open() as stored,
        decompress(stored, file.name) as stream,
        report_damage(file.name, lambda: 0),
    ):
        head = stream.peek(1 << 16)[: 1 << 16]
    if requested is not None:
        file.encoding, reason = check_encoding(requested), "as requested"
    else:
        file.encoding, reason = _detect(file, head)
    text = head.decode(file.encoding, errors="replace")
    file.carriage_returns = "\r" in text.rstrip("\r\n") and "\n" not in text
    if file.encoding == UTF8:
        return ""
    return f"{encoding_name(file.encoding)} ({reason})"


def check_encoding(name: str) -> str:
    """The standard name of a requested encoding; an unknown one raises."""
    try:
        found = codecs.lookup(name)
        if not found._is_text_encoding:
            raise LookupError
    except (LookupError, ValueError):
        raise CorpusError(
            f"unknown --encoding {name!r}; use for example utf-8, utf-16, cp1252, latin-1 or "
            "mac_roman"
        ) from None
    return UTF8 if found.name in ("utf-8", "utf-8-sig") else found.name


def encoding_name(encoding: str) -> str:
    """The usual name of an encoding."""
    return NAMES.get(encoding, encoding.replace("_", "-").upper())


def _detect(file: File, head: bytes) -> tuple[str, str]:
    if head.startswith(UTF8_BOM):
        return UTF8, ""
    for bom, encoding in BOMS.items():
        if head.startswith(bom):
            return encoding, "by its byte-order mark"
    if encoding := _utf16_without_bom(head):
        return encoding, "every second byte is zero"
    if b"\0" in head:
        raise CorpusError(f"{file.name} is not a text file: it has zero bytes; export it as CSV")
    scan = scan_file(file)
    # A file with some valid lines is UTF-8 with bad lines, which the reader reports.
    if not scan.invalid or 4 * scan.valid >= scan.invalid:
        return UTF8, ""
    try:
        return guess_encoding(file.name, scan)
    except CorpusError:
        if scan.invalid > FEW:
            raise
        return UTF8, ""  # damaged lines rather than another encoding: the reader reports them


def _utf16_without_bom(head: bytes) -> str:
    """UTF-16 of mostly Latin text has zeros in every second byte."""
    pairs = len(head) // 2
    even, odd = head[: 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if pairs and odd > 0.3 * pairs > 10 * even:
        return "utf-16-le"
    return "utf-16-be" if pairs and even > 0.3 * pairs > 10 * odd else ""


def scan_file(file: File) -> EncodingScan:
    """Validate the first SCAN_BYTES as UTF-8, block by block, and sample the invalid lines."""
    scan = EncodingScan()
    for block in _blocks_of_lines(file):
        if block.isascii():
            continue
        try:
            block.decode()
            scan.valid += 1  # at least one line; enough to know
        except UnicodeDecodeError:
            for line in block.replace(b"\r", b"\n").split(b"\n"):
                if not line.isascii():
                    scan.add(line)
    return scan


def _blocks_of_lines(file: File) -> Iterator[bytes]:
    """Large blocks that end with a line."""
    rest, done = b"", 0
    with file.open() as stored, decompress(stored, file.name) as stream:
        while done < SCAN_BYTES:
            try:
                block = stream.read1(BUFFER_BYTES)
            except READ_ERRORS:
                break  # reading the file reports the damage
            if not block:
                break
            done += len(block)
            lines, newline, tail = (rest + block).rpartition(b"\n")
            if newline:
                yield lines
            rest = tail
    yield rest


def guess_encoding(name: str, scan: EncodingScan) -> tuple[str, str]:
    """The encoding of lines that are not valid UTF-8, and the reason; raises if it is unclear."""
    count = f"{scan.invalid:,} line{'s' * (scan.invalid != 1)}"
    problem = f"{count} {'are' if scan.invalid != 1 else 'is'} not valid UTF-8"
    data = b"\n".join(scan.sample)
    guesses = sorted(_guesses(data), key=lambda guess: -guess[0])
    plausible = [guess for guess in guesses if guess[0] >= PLAUSIBLE]
    if plausible and any(c.isalpha() and c > "ɏ" for c in data.decode(plausible[0][1])):
        plausible = _rank_by_frequency(data, plausible)
    if not plausible:
        encoding, language = guess_east_asian(data) or ask_charset_normalizer(data)
        if encoding:
            seems = f"; the text seems to be {language}" if language else ""
            return encoding, f"{problem}{seems}; --encoding overrides it"
        raise CorpusError(
            f"{name}: {problem}, and no common encoding fits; name it with --encoding, for "
            "example --encoding cp1252"
        )
    score, encoding, language = plausible[0]
    text = data.decode(encoding)
    for other_score, other, _ in plausible[1:]:
        if other_score > score - CLEAR and data.decode(other) != text:
            raise CorpusError(
                f"{name}: {problem}, and the encoding is unclear: {_example(data, encoding)} or "
                f"{_example(data, other)}; pass --encoding {encoding} or --encoding {other}"
            )
    letters = Counter(c for c in text if not c.isascii() and c.isalpha())
    common = ", ".join(letter for letter, _ in letters.most_common(3))
    fits = f", and its letters ({common}) fit {language}" if common else ""
    return encoding, f"{problem}{fits}; --encoding overrides it"


def _guesses(data: bytes) -> Iterator[tuple[float, str, str]]:
    """Each single-byte encoding that can decode the sample, with its score and its language."""
    for encoding, languages in ENCODING_LANGUAGES.items():
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        scores = {language: _score(text, *languages[language]) for language in languages}
        score = max(scores.values())
        best = [language for language in scores if scores[language] == score]
        language = best[0] if len(best) == 1 else f"{len(best)} languages"
        yield score - 0.1 * (encoding in UNUSUAL), encoding, language


def _rank_by_frequency(
    data: bytes, guesses: list[tuple[float, str, str]]
) -> list[tuple[float, str, str]]:
    """The guesses by the frequency of their letters: log p / 100, with p ∝ 1 / (rank + 3)."""
    ranked = []
    for _, encoding, _ in guesses:
        best = (float("-inf"), encoding, "")
        for language, letters in ENCODING_LANGUAGES[encoding].items():
            rank = {letter: i for i, letter in enumerate("".join(letters))}
            text = [c for c in data.decode(encoding).lower() if not c.isascii()]
            score = -sum(math.log(rank.get(c, 99) + 3) for c in text) / 100
            best = max(best, (score, encoding, language))
        ranked.append(best)
    return sorted(ranked, reverse=True)


def _score(text: str, common: str, rare: str) -> float:
    """The share of the characters beyond ASCII that fit a language; rare letters count half."""
    total = fitting = 0.0
    usual, unusual = _alphabet(common), _alphabet(rare)
    for before, character, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if character.isascii():
            continue
        total += 1
        if character in TYPOGRAPHY:
            fitting += character in INNER or not (before.isalpha() and after.isalpha())
        elif before.islower() and character.isupper():
            continue  # a capital inside a word
        elif character > "ɏ" and any(c.isascii() and c.isalpha() for c in (before, after)):
            continue  # a letter of another script beside a Latin one
        else:
            fitting += (character in usual) + RARE * (character in unusual)
    return fitting / max(1.0, total)


@cache
def _alphabet(letters: str) -> frozenset[str]:
    return frozenset(letters + letters.upper().replace("S", ""))


def _example(data: bytes, encoding: str) -> str:
    """The first word with a letter beyond ASCII, as this encoding reads it."""
    words = data.decode(encoding, errors="replace").replace(";", " ").replace(",", " ").split()
    word = next((word for word in words if not word.isascii()), "")
    return f"{encoding_name(encoding)} reads {word[:30]!r}"
