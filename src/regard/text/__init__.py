"""Text to ids: corpora, tokenizers, tokenized pairs on disk and the batches of training steps."""

from typing import TYPE_CHECKING

from regard.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.text.batching import (
        Batch,
        Batches,
        split_batch,
        with_begin,
        with_end,
        with_labels,
        with_source_tokens,
    )
    from regard.text.bpe_dropout import BpeDropout
    from regard.text.corpus import Corpus
    from regard.text.corpus_stats import CorpusStats, collect_stats
    from regard.text.corpus_tokenization import tokenize_corpus
    from regard.text.data_checks import DataReport, PairChecks
    from regard.text.heldout import HeldOutSplit, Overlap, group_references
    from regard.text.reading import CorpusReader, Pair
    from regard.text.static_batch import StaticShape, TrainingBatch, pack_batch, unpack_batch
    from regard.text.template import DEFAULT_TEMPLATE, Template, TemplateError
    from regard.text.tokenized_pairs import TokenizedPairs
    from regard.text.tokenizer_choice import (
        TokenizerChoice,
        choose_tokenizer,
        default_vocabulary_size,
    )
    from regard.text.tokenizer_training import TOKENIZERS, train_tokenizer
    from regard.text.tokenizers import BEGIN, END, UNKNOWN, Piece, Tokenizer

__all__ = [
    "BEGIN",
    "DEFAULT_TEMPLATE",
    "END",
    "TOKENIZERS",
    "UNKNOWN",
    "Batch",
    "Batches",
    "BpeDropout",
    "Corpus",
    "CorpusReader",
    "CorpusStats",
    "DataReport",
    "HeldOutSplit",
    "Overlap",
    "Pair",
    "PairChecks",
    "Piece",
    "StaticShape",
    "Template",
    "TemplateError",
    "TokenizedPairs",
    "Tokenizer",
    "TokenizerChoice",
    "TrainingBatch",
    "choose_tokenizer",
    "collect_stats",
    "default_vocabulary_size",
    "group_references",
    "pack_batch",
    "split_batch",
    "tokenize_corpus",
    "train_tokenizer",
    "unpack_batch",
    "with_begin",
    "with_end",
    "with_labels",
    "with_source_tokens",
]

_HOMES = {
    "batching": (
        *("Batch", "Batches", "split_batch"),
        *("with_begin", "with_end", "with_labels", "with_source_tokens"),
    ),
    "bpe_dropout": ("BpeDropout",),
    "corpus": ("Corpus",),
    "corpus_stats": ("CorpusStats", "collect_stats"),
    "corpus_tokenization": ("tokenize_corpus",),
    "data_checks": ("DataReport", "PairChecks"),
    "heldout": ("HeldOutSplit", "Overlap", "group_references"),
    "reading": ("CorpusReader", "Pair"),
    "static_batch": ("StaticShape", "TrainingBatch", "pack_batch", "unpack_batch"),
    "template": ("DEFAULT_TEMPLATE", "Template", "TemplateError"),
    "tokenized_pairs": ("TokenizedPairs",),
    "tokenizer_choice": ("TokenizerChoice", "choose_tokenizer", "default_vocabulary_size"),
    "tokenizer_training": ("TOKENIZERS", "train_tokenizer"),
    "tokenizers": ("BEGIN", "END", "UNKNOWN", "Piece", "Tokenizer"),
}
__getattr__ = lazy_names(__name__, _HOMES)
