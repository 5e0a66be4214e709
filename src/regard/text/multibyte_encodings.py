"""Guesses for text in no alphabet: East Asian encodings by their characters, and the guess of
charset-normalizer for the rest."""

from __future__ import annotations


def guess_east_asian(data: bytes) -> tuple[str, str] | None:
    """Japanese has kana, Korean is Hangul, and the rest may be Chinese."""
    for encoding in ("cp932", "euc_jp"):
        if _share(data, encoding, "\u3040", "\u30ff") > 0.3:
            return encoding, "Japanese"
    if _share(data, "cp949", "\uac00", "\ud7a3") > 0.95:
        return "cp949", "Korean"
    for encoding, tested in (("gb18030", "gb2312"), ("big5", "big5")):
        if _share(data, tested, "\u4e00", "\u9fff") > 0.9:
            return encoding, "Chinese"
    return None


def _share(data: bytes, encoding: str, first: str, last: str) -> float:
    """The share of characters beyond ASCII in a range; 0 if the encoding does not fit."""
    try:
        characters = [c for c in data.decode(encoding) if not c.isascii()]
    except UnicodeDecodeError:
        return 0.0
    return sum(first <= c <= last for c in characters) / max(1, len(characters))


def ask_charset_normalizer(data: bytes) -> tuple[str, str]:
    """The guess of charset-normalizer, if it is confident."""
    from charset_normalizer import from_bytes

    best = from_bytes(data).best()
    if best is None or best.chaos > 0.1 or best.coherence < 0.2:
        return "", ""
    return best.encoding, "" if best.language == "Unknown" else best.language
