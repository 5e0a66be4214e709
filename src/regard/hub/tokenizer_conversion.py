"""The tokenizers of a Hugging Face folder as definitions in the format of tokenizer.json.

A tokenizer.json is used as it is. SentencePiece models (Marian, T5, mBART, M2M100, NLLB, Pegasus),
vocab.json with merges.txt (BART, Blenderbot, FSMT) and the bytes of ByT5 are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.hub.hf_tokenizer import TARGET_FOLDER
from regard.hub.language_codes import known_codes
from regard.hub.sentencepiece_model import CONTROL, USER_DEFINED, SentencePieceModel
from regard.hub.tokenizer_documents import (
    METASPACE,
    SINGLE_SPACES,
    SPLIT_SPACES,
    Document,
    Scored,
    bpe,
    charsmap,
    document,
    find_merges,
    sentencepiece_document,
    unigram,
)
from regard.hub.tokenizer_files import ADD_FILE, TokenizerFiles
from regard.text.regard_vocabulary import SPECIAL_TOKENS

FAIRSEQ = ("bos_token", "pad_token", "eos_token", "unk_token")  # ids 0 to 3
USE_BUNDLE = "use the bundle that it was exported from"
BPE_MODEL = "sentencepiece.bpe.model"
END_OF_WORD = "</w>"


def tokenizer_documents(files: TokenizerFiles, family: str) -> tuple[Document, Document]:
    """The definitions of source and target; one object if they are the same."""
    if family == "marian" and files.has("source.spm"):
        return _marian(files)
    if family == "fsmt" and files.has("vocab-src.json"):
        return _fsmt(files, "vocab-src.json", 0), _fsmt(files, "vocab-tgt.json", 1)
    found = files.folder.read_json("tokenizer.json")
    if found is not None and _is_exported(found):
        folder = files.folder.part(TARGET_FOLDER)
        other = folder.read_json("tokenizer.json") if folder else None
        source = _restore(files, found, files.sizes[0])
        return source, source if other is None else _restore(files, other, files.sizes[1])
    if found is None:
        if files.kind == "ByT5Tokenizer":
            found = _byt5(files)
        elif family in CONVERTERS:
            found = CONVERTERS[family](files)
        else:
            raise files.missing()
    return found, found


def _is_exported(made: Document) -> bool:
    """Whether `regard export` wrote a definition: its first ids are Regard's special tokens."""
    model = made.get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(ids, list):  # a unigram model
        ids = {entry[0]: id for id, entry in enumerate(ids) if isinstance(entry, list) and entry}
    return isinstance(ids, dict) and all(
        ids.get(token) == id for id, token in enumerate(SPECIAL_TOKENS)
    )


def _restore(files: TokenizerFiles, made: Document, size: int) -> Document:
    """The definition without what the export added for transformers: tokens that `decode` skips,
    and those around a text, which the template of the bundle has."""
    entries = made.get("added_tokens")
    entries = entries if isinstance(entries, list) else []
    names = [entry.get("content") for entry in entries if entry.get("special")]
    if other := [name for name in names if name not in SPECIAL_TOKENS]:
        reason = f"its tokenizer has special tokens of its own, {other[0]!r}"
        raise files.folder.error(reason, USE_BUNDLE)
    if len(made["model"]["vocab"]) != size:
        reason = "source and target have vocabularies of different sizes, stored as one"
        raise files.folder.error(reason, f"{USE_BUNDLE}, or train with text.shared_vocabulary")
    kept = [entry for entry in entries if not entry.get("special")]
    return {**made, "added_tokens": kept, "post_processor": None}


def _marian(files: TokenizerFiles) -> tuple[Document, Document]:
    separate = bool(files.config.get("separate_vocabs"))
    names = ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    source, target = (
        _marian_side(files, pieces, name, size)
        for pieces, name, size in zip(("source.spm", "target.spm"), names, files.sizes, strict=True)
    )
    return source, target


def _marian_side(files: TokenizerFiles, pieces: str, vocabulary: str, size: int) -> Document:
    """One side of Marian: the pieces of SentencePiece with the ids of vocab.json. Codes such as
    >>fra<< are tokens."""
    ids = files.read_ids(vocabulary)
    codes = {name: id for name, id in ids.items() if name[:2] == ">>" and name[-2:] == "<<"}
    return sentencepiece_document(
        files.read_pieces(pieces),
        ids,
        max(len(ids), size),
        files.unknown(ids, vocabulary),
        special=files.special(ids, files.listed()),
        plain=codes,
    )


def _m2m100(files: TokenizerFiles) -> Document:
    """M2M100 has a vocab.json, NLLB has not."""
    if not files.has(BPE_MODEL):
        raise files.missing()
    if not files.has("vocab.json"):
        return _nllb(files)
    ids = files.read_ids("vocab.json")
    known = known_codes(str(files.config.get("language_codes", "m2m100")))
    named = [name for name in files.listed() if name.startswith("__")]
    codes = named or [f"__{code}__" for code in known]
    ids |= {name: len(ids) + number for number, name in enumerate(codes)}
    return sentencepiece_document(
        files.read_pieces(BPE_MODEL),
        ids,
        max(len(ids), *files.sizes),
        files.unknown(ids, "vocab.json"),
        special=files.special(ids, codes),
    )


def _nllb(files: TokenizerFiles) -> Document:
    model, codes, mask = files.read_pieces(BPE_MODEL), files.listed(), files.name("mask_token")
    if not codes:
        raise files.folder.error("its files do not list the languages of NLLB", ADD_FILE)
    names = [*map(files.name, FAIRSEQ), *(one.text for one in model.pieces), *codes, mask]
    ids = {text: id for id, text in enumerate(dict.fromkeys(names))}
    merges = find_merges({one.text: -id for id, one in enumerate(model.pieces)})
    made = document(
        bpe(ids, merges, unknown=files.name("unk_token"), fuse_unknown=True),
        special=files.special(ids, [*codes, mask]),
        normaliser=[*charsmap(model), SINGLE_SPACES] if model.charsmap else [],
        pre_tokenizer=[METASPACE],
        decoder=METASPACE,
    )
    return _strip(made, [mask], right=False)


def _t5(files: TokenizerFiles) -> Document:
    if not files.has("spiece.model"):
        raise files.missing()
    model = files.read_pieces("spiece.model")
    count = files.count("extra_ids", 100)
    extra = [f"<extra_id_{number}>" for number in reversed(range(count))]
    scored = [*_scores(model, 0), *((name, 0.0) for name in extra)]
    return _split_unigram(files, model, scored, extra, charsmap(model))


def _pegasus(files: TokenizerFiles) -> Document:
    """Pegasus has tokens of its pretraining before the pieces."""
    if not files.has("spiece.model"):
        raise files.missing()
    model = files.read_pieces("spiece.model")
    masks = [f"<unk_{number}>" for number in range(2, files.count("offset", 103))]
    first = [files.name("pad_token"), files.name("eos_token"), "<mask_1>", "<mask_2>"]
    scored = [(name, 0.0) for name in first]
    scored += [*((name, -100.0) for name in masks), *_scores(model, 2)]
    normaliser = [*charsmap(model), SINGLE_SPACES]
    return _split_unigram(files, model, scored, [*first, *masks], normaliser, words=False)


def _mbart(files: TokenizerFiles) -> Document:
    if not files.has(BPE_MODEL):
        raise files.missing()
    model, mask = files.read_pieces(BPE_MODEL), files.name("mask_token")
    is_50 = files.kind == "MBart50Tokenizer"
    first = [files.name(role) for role in FAIRSEQ]
    last = [*known_codes("mbart50" if is_50 else "mbart"), mask]
    scored = [(name, 0.0) for name in first]
    scored += [*_scores(model, 3), *((name, 0.0) for name in last)]
    normaliser = [*charsmap(model), *([SINGLE_SPACES] if is_50 else [])]
    made = _split_unigram(files, model, scored, [*first, *last], normaliser, words=not is_50)
    return _strip(made, [mask], right=False)


def _scores(model: SentencePieceModel, skipped: int) -> Scored:
    return [(piece.text, piece.score) for piece in model.pieces[skipped:]]


def _split_unigram(
    files: TokenizerFiles,
    model: SentencePieceModel,
    scored: Scored,
    special: Sequence[str],
    normaliser: Sequence[Any],
    *,
    words: bool = True,
) -> Document:
    """A unigram model on single words; `words` splits at every white space, not only at U+0020."""
    ids = {text: id for id, (text, _) in enumerate(scored)}
    control = [one.text for one in model.pieces if one.type == CONTROL]
    user = [one.text for one in model.pieces if one.type == USER_DEFINED]
    return document(
        unigram(scored, ids[files.unknown(ids, "the SentencePiece model")]),
        special=files.special(ids, [*control, *special]),
        plain={text: ids[text] for text in user if text in ids},
        normaliser=normaliser,
        pre_tokenizer=[SPLIT_SPACES, METASPACE] if words else [METASPACE],
        decoder=METASPACE,
    )


def _bart(files: TokenizerFiles, *, prefix_space: bool = False) -> Document:
    """Byte-level BPE."""
    if not files.has("merges.txt"):
        raise files.missing()
    ids, mask = files.read_ids("vocab.json"), files.name("mask_token")
    prefix = bool(files.config.get("add_prefix_space", prefix_space))
    level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return document(
        bpe(ids, files.read_merges()),
        special=files.special(ids, [mask]),
        pre_tokenizer=[{**level, "add_prefix_space": prefix}],
        decoder={**level, "add_prefix_space": True},
    )


def _blenderbot(files: TokenizerFiles) -> Document:
    made = _bart(files, prefix_space=True)
    return _strip(made, [files.name("mask_token")], right=False)


def _fsmt(files: TokenizerFiles, vocabulary: str, side: int) -> Document:
    """The BPE of FSMT; texts must come split by the Moses tokenizer. Pieces that the vocabulary
    does not have take part in merges and are unknown."""
    ids = files.read_ids(vocabulary)
    merges, free = files.read_merges(), max(len(ids), files.sizes[side])
    parts = dict.fromkeys(part for pair in merges for part in (*pair, "".join(pair)))
    others = [part for part in parts if part not in ids]
    every = {**ids, **{part: free + number for number, part in enumerate(others)}}
    return document(
        bpe(every, merges, unknown=files.unknown(ids, vocabulary), suffix=END_OF_WORD),
        special=files.special(ids),
        pre_tokenizer=[SPLIT_SPACES],
        decoder={"type": "BPEDecoder", "suffix": END_OF_WORD},
    )


def _byt5(files: TokenizerFiles) -> Document:
    """Bytes after the three special tokens, then sentinels."""
    names = [files.name(role) for role in ("pad_token", "eos_token", "unk_token")]
    extra = files.listed() or [f"<extra_id_{number}>" for number in range(125)]
    tokens = [*names, *(f"<0x{byte:02X}>" for byte in range(256)), *extra]
    ids = {text: id for id, text in enumerate(tokens)}
    made = document(
        bpe(ids, [], unknown=names[2], byte_fallback=True),
        special={name: ids[name] for name in (*names, *extra)},
        decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    )
    return _strip(made, names, right=True)


def _strip(made: Document, names: Sequence[str], *, right: bool) -> Document:
    """The definition with special tokens that take the spaces around them."""
    for token in made["added_tokens"]:
        if token["content"] in names:
            token |= {"lstrip": True, "rstrip": right}
    return made


CONVERTERS: dict[str, Callable[[TokenizerFiles], Document]] = {
    "t5": _t5,
    "mt5": _t5,
    "pegasus": _pegasus,
    "mbart": _mbart,
    "m2m_100": _m2m100,
    "bart": _bart,
    "blenderbot": _blenderbot,
}
