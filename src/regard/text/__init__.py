"""Text in, ids out: corpora, tokenisers, ids on disk and the batches a training step reads."""

from regard.text.batching import Batch, Batches, begun, ended, split
from regard.text.bpe_dropout import Respelling
from regard.text.corpus import Corpus
from regard.text.corpus_stats import Survey, survey
from regard.text.heldout import Overlap, Split, variants
from regard.text.ids import tokenise
from regard.text.pairs import Pairs
from regard.text.reading import Pair, Reading
from regard.text.static_batch import Lesson, Shape, filled, opened
from regard.text.tokenizer_choice import Choice, auto, default_size
from regard.text.tokenizer_training import TOKENIZERS, train_tokenizer
from regard.text.tokenizers import BEGIN, END, UNKNOWN, Piece, Tokenizer

__all__ = [
    "BEGIN",
    "END",
    "TOKENIZERS",
    "UNKNOWN",
    "Batch",
    "Batches",
    "Choice",
    "Corpus",
    "Lesson",
    "Overlap",
    "Pair",
    "Pairs",
    "Piece",
    "Reading",
    "Respelling",
    "Shape",
    "Split",
    "Survey",
    "Tokenizer",
    "auto",
    "begun",
    "default_size",
    "ended",
    "filled",
    "opened",
    "split",
    "survey",
    "tokenise",
    "train_tokenizer",
    "variants",
]
