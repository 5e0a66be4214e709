"""Text in, ids out: corpora, tokenisers, ids on disk and the batches a training step reads."""

from regard.text.auto import Choice, auto, default_size
from regard.text.batches import Batch, Batches, begun, ended, split
from regard.text.corpus import Corpus
from regard.text.heldout import Overlap, Split, variants
from regard.text.ids import tokenise
from regard.text.kinds import TOKENIZERS, train_tokenizer
from regard.text.lessons import Lesson, Shape, filled, opened
from regard.text.pairs import Pairs
from regard.text.reading import Pair, Reading
from regard.text.respelling import Respelling
from regard.text.survey import Survey, survey
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
