"""Vectors: words and their embeddings, and what can be asked of their directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError, ShapeError, UnknownName
from regard.vectors import vector_files as files
from regard.vectors.geometry import cosine, similarities, unit
from regard.vectors.questions import Accuracy, Question, read_questions, tally

Query = str | Float[Tensor, " dim"]
_SCORES = 1 << 24  # how many scores are held at once while many questions are asked


class Vectors:
    """Words and a table with one vector for each: `Vectors(words, table)`, or `Vectors.read(path)`.

    A zero vector has no direction: its cosine with anything is 0, it is nobody's neighbour and answers no analogy, and
    asking for its own neighbours is an error.

    Lengths are kept beside the table, not a second table of unit vectors: a question reads the whole table once either
    way, so the copy would double the memory and save nothing. The table itself is not copied either, unless it is still
    being learned (a Parameter): what you gave must not change.
    """

    def __init__(self, words: Sequence[str], table: Tensor) -> None:
        if table.ndim != 2 or len(words) != len(table) or not table.numel():
            raise ShapeError(
                f"a table has one vector for each word; got {len(words)} words, shape {tuple(table.shape)}"
            )
        self.words = list(words)
        self.table: Float[Tensor, "word dim"] = table.detach().clone() if table.requires_grad else table
        if table.dtype not in (torch.float32, torch.float64):
            self.table = self.table.float()
        self._row = {word: row for row, word in enumerate(self.words)}
        if len(self._row) < len(words):
            twice = next(word for row, word in enumerate(self.words) if self._row[word] != row)
            raise RegardError(f"the word {twice!r} is in the list more than once; each word has one vector")
        lengths = torch.linalg.vector_norm(self.table, dim=1).double()
        extreme = ((lengths < 1e-12) | ~(lengths < 1e12)).nonzero()[:, 0]  # their squares may vanish or overflow
        lengths[extreme] = torch.linalg.vector_norm(self.table[extreme].double(), dim=1)
        if not lengths.isfinite().all():
            raise RegardError(f"the vector of {self.words[int(lengths.isfinite().int().argmin())]!r} is not finite")
        directed = lengths > torch.finfo(self.table.dtype).tiny
        self._inverse = torch.where(directed, 1 / lengths, 0).to(self.table.dtype)
        self._undirected: Int[Tensor, " zero"] = (~directed).nonzero()[:, 0]

    @classmethod
    def read(cls, path: str | Path, *, format: str | None = None) -> Vectors:
        """Read a file of format 'word2vec', 'word2vec-binary' or 'glove', gzipped or not; found out unless named."""
        return cls(*files.read(path, format))

    def write(self, path: str | Path, *, format: str = "word2vec") -> None:
        """Write a file of float32 numbers, whole or not at all; gzipped if the path ends in .gz."""
        files.write(path, self.words, self.table, format)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._row

    def __getitem__(self, word: str) -> Float[Tensor, " dim"]:
        """The vector of a word, yours to change."""
        return self.table[self._find(word)].clone()

    def cosine(self, a: Query, b: Query) -> float:
        """The cosine between two words, or vectors."""
        return cosine(self._vector(a).double(), self._vector(b).double()).item()

    def similarities(self, words: Iterable[str], others: Iterable[str] | None = None) -> Float[Tensor, "row column"]:
        """The table of cosines: of the words among themselves, or with `others`."""
        rows = self.table[[self._find(word) for word in words]]
        columns = None if others is None else self.table[[self._find(word) for word in others]]
        return similarities(rows, columns)

    def neighbours(self, query: Query, n: int = 10) -> list[tuple[str, float]]:
        """The n words nearest to a word or vector, with their cosines, best first. A word is not its own neighbour."""
        return self._nearest(self._vector(query), n, [query], repr(query) if isinstance(query, str) else "the query")

    def analogy(
        self, a: Query, b: Query, c: Query, n: int = 10, *, excluding: bool = True, normalised: bool = True
    ) -> list[tuple[str, float]]:
        """a is to b as c is to what? The n words nearest to b − a + c, with their cosines, best first.

        `analogy("man", "king", "woman")` asks for king − man + woman (3CosAdd; Mikolov, Yih and Zweig 2013).

        The three words asked about are left out of the answer, as everywhere in the literature: without that the
        answer is usually b or c. `excluding=False` shows what the arithmetic really found.

        `normalised` gives the three vectors length one first, as the paper does, so that a frequent word with a
        long vector does not drown the others; `normalised=False` calculates with the vectors as they are.
        """
        start, end, new = (self._vector(query) for query in (a, b, c))
        if normalised:
            start, end, new = unit(start), unit(end), unit(new)
        return self._nearest(end - start + new, n, [a, b, c] if excluding else [], "b − a + c")

    def accuracy(
        self, path: str | Path, *, excluding: bool = True, normalised: bool = True, lowercase: bool = False
    ) -> Accuracy:
        """The score over a file of analogy questions: sections `: name`, and lines `a b c d` whose answer is d.

        Questions with a word outside the table are counted as unknown, apart from right and wrong.
        `lowercase` is for tables of lower-cased words.
        """
        sections = read_questions(path)
        asked = [question for questions in sections.values() for question in questions]
        if lowercase:
            asked = [(a.lower(), b.lower(), c.lower(), d.lower()) for a, b, c, d in asked]
        outcome = iter(self._ask(asked, excluding, normalised))
        return Accuracy(tuple(tally(name, (next(outcome) for _ in asked)) for name, asked in sections.items()))

    def _ask(self, questions: Sequence[Question], excluding: bool, normalised: bool) -> list[bool | None]:
        """Whether each question is answered rightly; None where a word is unknown."""
        outcomes: list[bool | None] = [None] * len(questions)
        known = [i for i, question in enumerate(questions) if all(word in self._row for word in question)]
        size = max(1, _SCORES // len(self))
        for chunk in (known[i : i + size] for i in range(0, len(known), size)):
            rows = torch.tensor([[self._row[word] for word in questions[i]] for i in chunk], device=self.table.device)
            vectors = self.table[rows[:, :3]]
            start, end, new = (unit(vectors) if normalised else vectors).unbind(1)
            directions = end - start + new
            scores = self._scores(unit(directions))
            if excluding:
                scores.scatter_(1, rows[:, :3], -torch.inf)
            best, found = scores.max(1)
            right = (found == rows[:, 3]) & best.isfinite() & directions.any(1)
            for i, answer in zip(chunk, right.tolist(), strict=True):
                outcomes[i] = answer
        return outcomes

    def _nearest(
        self, vector: Float[Tensor, " dim"], n: int, excluded: Sequence[Query], name: str
    ) -> list[tuple[str, float]]:
        if n < 1:
            raise RegardError(f"n must be at least 1; got {n}")
        if not (vector.isfinite().all() and vector.any()):
            size = "zero" if vector.isfinite().all() else "not finite"
            raise RegardError(f"the vector of {name} is {size} and has no direction; ask about another word or vector")
        scores = self._scores(unit(vector)[None])[0]
        scores[[self._row[word] for word in excluded if isinstance(word, str)]] = -torch.inf
        best, rows = scores.topk(min(n, len(self)))
        pairs = zip(rows.tolist(), best.clamp(-1, 1).tolist(), best.isfinite().tolist(), strict=True)
        return [(self.words[row], score) for row, score, finite in pairs if finite]

    def _scores(self, directions: Float[Tensor, "question dim"]) -> Float[Tensor, "question word"]:
        """‖direction‖ · cosine with every word; −∞ for words without direction."""
        scores = (directions @ self.table.T).mul_(self._inverse)
        return scores.index_fill_(1, self._undirected, -torch.inf)

    def _vector(self, query: Query) -> Float[Tensor, " dim"]:
        if isinstance(query, str):
            return self[query]
        if query.shape != self.table.shape[1:]:
            raise ShapeError(f"a vector here has {self.table.shape[1]} numbers; got shape {tuple(query.shape)}")
        return query.detach().to(self.table)

    def _find(self, word: str) -> int:
        if word not in self._row:
            raise UnknownName(f"unknown word {word!r}; {self._way_out(word)}")
        return self._row[word]

    def _way_out(self, word: str) -> str:
        """The nearest known word, sought among the first that begin alike: a million comparisons would take long."""
        near = [other for other in (word.lower(), word.capitalize(), word.upper()) if other in self._row]
        if not near:
            alike = (w for w in self.words if w[:1] == word[:1] and abs(len(w) - len(word)) <= 2)
            near = get_close_matches(word, islice(alike, 10_000), n=1)
        return f"did you mean {near[0]!r}?" if near else f"this table has {len(self)} words, such as {self.words[0]!r}"
