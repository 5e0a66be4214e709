"""Tiny tokenizers in the styles of other projects, trained on lines of mixed scripts."""

from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LINES = [
    "the cat sat on the mat, the cat did",
    "two  spaces, and a trailing one ",
    "Wörter mit Umlauten: älter, größer, schöner (1984)",
    "我们今天去公园散步。天气很好，我们很高兴。",
    "今日は天気がいいから、散歩しましょう。",
    "Привет, мир! Сегодня хорошая погода.",
    "वह आज पार्क में टहलने गया",
    "café et cafe\u0301, naïve ﬁn ①",
    "emoji 🙂👍🏽 and a </s> inside",
]


def byte_level() -> Tokenizer:
    """GPT-2 and BART: BPE over bytes, <s> 0, <pad> 1, </s> 2, <unk> 3."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.enable_truncation(12)
    made.enable_padding(pad_id=1, pad_token="<pad>")
    return made


def sentencepiece() -> Tokenizer:
    """T5 and NLLB: Unigram with ▁ for a space, <pad> 0, </s> 1, <unk> 2, and a language at the
    end."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace("  ", " "), normalizers.Strip(left=False)]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    made.train_from_iterator([line for line in LINES if "🙂" not in line], trainer)
    made.add_special_tokens([AddedToken("deu_Latn", normalized=False)])
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return made


def byte_fallback() -> Tokenizer:
    """Llama style: BPE with ▁ and bytes for what has no token."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    made.train_from_iterator(LINES[:3], trainer)
    return made


def wordpiece() -> Tokenizer:
    """BERT: lower-cased WordPiece without accents, [PAD] 0, [UNK] 1."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=special, show_progress=False, limit_alphabet=60
    )
    made.train_from_iterator(LINES, trainer)
    return made


STYLES = {
    "byte-level": byte_level,
    "sentencepiece": sentencepiece,
    "byte-fallback": byte_fallback,
    "wordpiece": wordpiece,
}


def save_style(style: str, folder: Path) -> Path:
    """Write the tokenizer.json of a style."""
    path = folder / "tokenizer.json"
    STYLES[style]().save(str(path))
    return path
