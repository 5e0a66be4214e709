"""Text to ids: corpora, tokenizers, tokenized pairs on disk and the batches of training steps."""

from regard.text.batching import Batch, Batches, split_batch, with_begin, with_end
from regard.text.bpe_dropout import BpeDropout
from regard.text.corpus import Corpus
from regard.text.corpus_stats import CorpusStats, collect_stats
from regard.text.corpus_tokenization import tokenize_corpus
from regard.text.data_checks import DataReport, PairChecks
from regard.text.heldout import HeldOutSplit, Overlap, group_references
from regard.text.reading import CorpusReader, Pair
from regard.text.static_batch import StaticShape, TrainingBatch, pack_batch, unpack_batch
from regard.text.tokenized_pairs import TokenizedPairs
from regard.text.tokenizer_choice import TokenizerChoice, choose_tokenizer, default_vocabulary_size
from regard.text.tokenizer_training import TOKENIZERS, train_tokenizer
from regard.text.tokenizers import BEGIN, END, UNKNOWN, Piece, Tokenizer

__all__ = [
    "BEGIN",
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
]
