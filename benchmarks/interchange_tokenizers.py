"""Tiny tokenizers of Hugging Face models in their own files, and what the originals make of texts.

Each writer trains a tokenizer on lines of mixed scripts, writes the files of its family to a folder
and returns the original: a function from text to ids, without special tokens around it.
"""

import json
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import transformers

from regard.hub.checkpoint_folder import CheckpointFolder
from regard.hub.sentencepiece_model import SentencePieceModel
from regard.hub.tokenizer_conversion import tokenizer_documents
from regard.hub.tokenizer_files import TokenizerFiles
from regard.text.tokenizers import Tokenizer

Original = Callable[[str], list[int]]
WORDS = (
    "the quick brown fox jumps over lazy dog attention is all you need über straße naïve café "
    "größe Ελληνικά γλώσσα Привет мир язык 中文 日本語 テスト 한국어 مرحبا عالم हिन्दी भाषा ไทย 123 "
    "4567 don't it's e-mail 50% (test) «да» …"
)
SPACES = [*[" "] * 12, "  ", "\t", "\N{NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}", ", ", "-"]
RARE = "😀𝔘ﬁ①Å\N{COMBINING ACUTE ACCENT}\N{ZERO WIDTH SPACE}▁\N{SOFT HYPHEN}"
EDGE_CASES = ["", " ", "\n x \r\n y", "</s> the <pad> fox", "a <mask> b", "<extra_id_0> the", "x"]
BOS_FIRST = {"unk_id": 0, "bos_id": 1, "eos_id": 2}
PAD_FIRST = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LANGUAGES = ["eng_Latn", "deu_Latn", "fra_Latn"]


def mixed_lines(count: int = 1_010, seed: int = 0) -> list[str]:
    """Lines of words in many scripts, some shuffled or with rare characters, and edge cases."""
    draw = random.Random(seed)
    lines = list(EDGE_CASES)
    while len(lines) < count:
        line = " " if draw.random() < 0.1 else ""
        for _ in range(draw.randint(0, 14)):
            word = draw.choice(WORDS.split())
            if draw.random() < 0.15:
                word = "".join(draw.sample(word, len(word)))
            if draw.random() < 0.1:
                word = word.upper()
            if draw.random() < 0.03:
                word += draw.choice(RARE)
            line += word + draw.choice(SPACES)
        lines.append(line.rstrip() if draw.random() < 0.7 else line)
    return lines


def count_differences(kind: str, folder: Path, lines: Sequence[str]) -> tuple[int, int]:
    """Write the files of a tokenizer; the number of lines that the imported one splits otherwise,
    and of all lines.

    Names of special tokens in a text are left out where the original does not look for them, and
    with NLLB, whose <mask> has another id in transformers 5.23 than in the published models.
    """
    original = WRITERS[kind](folder)
    sizes = (original.size, original.size) if isinstance(original, _Sized) else (1 << 16, 1 << 16)
    family = FAMILIES[kind]
    files = TokenizerFiles(CheckpointFolder(folder), sizes)
    definition = tokenizer_documents(files, family)[0]
    imported = Tokenizer.from_json(json.dumps(definition)).with_size(sizes[0])
    if kind in ("mbart", "fsmt", "nllb"):
        lines = [line for line in lines if "<" not in line]
    different = sum(imported.encode(line) != original(line) for line in lines)
    return different, len(lines)


class _Sized:
    """An original whose model has a known number of ids."""

    def __init__(self, encode: Original, size: int) -> None:
        self._encode, self.size = encode, size

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)


def _train(path: Path, kind: str, size: int, **options: Any) -> SentencePieceModel:
    lines = [line for line in mixed_lines(800) if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path.with_suffix("")),
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        character_coverage=0.985,  # some characters are unknown
        minloglevel=2,
        **options,
    )
    path.with_suffix(".vocab").unlink()
    path.with_suffix(".model").rename(path)
    return SentencePieceModel.parse(path.read_bytes())


def _write(folder: Path, name: str, values: Any) -> None:
    (folder / name).write_text(json.dumps(values), encoding="utf-8")


def _load(folder: Path, kind: str, **options: Any) -> Original:
    _write(folder, "tokenizer_config.json", {"tokenizer_class": kind, **options})
    loaded = getattr(transformers, kind).from_pretrained(folder)
    return lambda text: loaded(text, add_special_tokens=False).input_ids


def _marian(folder: Path, kind: str) -> Original:
    options = {"bos_id": -1, "eos_id": 0, "unk_id": 1}
    source = _train(folder / "source.spm", kind, 300, **options)
    target = _train(folder / "target.spm", kind, 200, **options)
    names = [piece.text for piece in source.pieces][:-15]  # others are unknown to the model
    names += [piece.text for piece in target.pieces if piece.text not in names][:-5]
    names += [">>fra<<", "<pad>"]
    random.Random(3).shuffle(names)
    _write(folder, "vocab.json", {name: id for id, name in enumerate(names)})
    return _Sized(_load(folder, "MarianTokenizer"), len(names))


def _m2m100(folder: Path) -> Original:
    model = _train(folder / "sentencepiece.bpe.model", "bpe", 400, **BOS_FIRST)
    names = ["<s>", "<pad>", "</s>", "<unk>", *(one.text for one in model.pieces[3:-40])]
    _write(folder, "vocab.json", {name: id for id, name in enumerate(names)})
    return _Sized(_load(folder, "M2M100Tokenizer"), len(names) + 108)


def _nllb(folder: Path) -> Original:
    _train(folder / "sentencepiece.bpe.model", "bpe", 400, **BOS_FIRST)
    return _load(folder, "NllbTokenizer", additional_special_tokens=LANGUAGES)


def _saved_nllb(folder: Path) -> Original:
    original = _nllb(folder)
    transformers.NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    return original


def _mbart(folder: Path) -> Original:
    """SentencePiece itself: MBartTokenizer of transformers 5.23 leaves out its normalisation."""
    path = folder / "sentencepiece.bpe.model"
    _train(path, "unigram", 300, **BOS_FIRST)
    _write(folder, "tokenizer_config.json", {"tokenizer_class": "MBartTokenizer"})
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def encode(text: str) -> list[int]:
        return [id + 1 if id else 3 for id in processor.encode(text)]

    return encode


def _mbart50(folder: Path) -> Original:
    _train(folder / "sentencepiece.bpe.model", "unigram", 300, **BOS_FIRST)
    return _load(folder, "MBart50Tokenizer")


def _spiece(folder: Path, kind: str) -> Original:
    _train(folder / "spiece.model", "unigram", 300, **PAD_FIRST)
    return _load(folder, kind)


def _byte_level(folder: Path, kind: str) -> Original:
    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    lines = mixed_lines(800)
    trained.train_from_iterator(lines, vocab_size=500, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    return _load(folder, kind)


def _byt5(folder: Path) -> Original:
    transformers.ByT5Tokenizer().save_pretrained(folder)
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    return lambda text: loaded(text, add_special_tokens=False).input_ids


def _fsmt(folder: Path) -> Original:
    """The BPE of FSMT, on texts that are split already."""
    trained = tokenizers.Tokenizer(
        tokenizers.models.BPE(unk_token="<unk>", end_of_word_suffix="</w>")
    )
    trained.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    trained.train_from_iterator(mixed_lines(600), trainer)
    model = json.loads(trained.to_str())["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    kept = [one for one in names if names.index(one) < 4 or zlib.crc32(one.encode()) % 7]
    for side in ("src", "tgt"):
        _write(folder, f"vocab-{side}.json", {name: id for id, name in enumerate(kept)})
    merges = "".join(f"{left} {right} 12\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    loaded = transformers.FSMTTokenizer.from_pretrained(folder, langs=["en", "de"])

    def encode(text: str) -> list[int]:
        return loaded.convert_tokens_to_ids(loaded._tokenize(text, bypass_tokenizer=True))

    return _Sized(encode, len(kept))


WRITERS: dict[str, Callable[[Path], Original]] = {
    "marian": lambda folder: _marian(folder, "unigram"),
    "marian-bpe": lambda folder: _marian(folder, "bpe"),
    "m2m100": _m2m100,
    "nllb": _nllb,
    "nllb-json": _saved_nllb,
    "mbart": _mbart,
    "mbart50": _mbart50,
    "t5": lambda folder: _spiece(folder, "T5Tokenizer"),
    "pegasus": lambda folder: _spiece(folder, "PegasusTokenizer"),
    "bart": lambda folder: _byte_level(folder, "BartTokenizer"),
    "blenderbot": lambda folder: _byte_level(folder, "BlenderbotTokenizer"),
    "byt5": _byt5,
    "fsmt": _fsmt,
}
FAMILIES = {
    **{kind: kind for kind in ("t5", "pegasus", "mbart", "bart", "blenderbot", "fsmt", "marian")},
    "marian-bpe": "marian",
    "m2m100": "m2m_100",
    "nllb": "m2m_100",
    "nllb-json": "m2m_100",
    "mbart50": "mbart",
    "byt5": "t5",
}
