"""Vectors: a table of word embeddings with neighbours and analogies; cosines and PCA."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError, ShapeError, UnknownName
from regard.vectors.vector_files import (
    Accuracy,
    Question,
    read_questions,
    read_vectors,
    tally,
    write_vectors,
)


def unit(vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Vectors scaled to length one: v / ‖v‖. A zero vector stays zero."""
    tiny = torch.finfo(vectors.dtype).tiny
    # Dividing by the largest entry first avoids overflow and underflow of the squares.
    vectors = vectors / vectors.abs().amax(-1, keepdim=True).clamp(min=tiny)
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=tiny)


def cosine(
    a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch"]:
    """a · b / (‖a‖ ‖b‖) along the last axis; the other axes broadcast.

    The cosine with a zero vector is undefined; here it is 0, as in scikit-learn.
    """
    return (unit(a) * unit(b)).sum(-1).clamp(-1, 1)


def similarities(
    a: Float[Tensor, "*batch row dim"], b: Float[Tensor, "*batch column dim"] | None = None
) -> Float[Tensor, "*batch row column"]:
    """The cosines of every row of `a` with every row of `b` (default: of `a` itself)."""
    rows = unit(a)
    columns = rows if b is None else unit(b)
    return torch.einsum("...rd,...cd->...rc", rows, columns).clamp(-1, 1)


def pca_plane(
    vectors: Float[Tensor, "vector dim"],
) -> tuple[Float[Tensor, "vector 2"], tuple[float, float]]:
    """The coordinates of vectors on their first two principal components (float64), and the share
    of the variance that each component explains.

    The largest entry of a component is positive, so that plots do not flip.
    """
    centre, directions, shares = principal_axes(vectors)
    points = (vectors.double() - centre) @ directions[:2].T
    missing = (0, 2 - points.shape[1])  # one vector, or one dimension, spans less than a plane
    first, second = torch.nn.functional.pad(shares[:2], missing).tolist()
    return torch.nn.functional.pad(points, missing), (first, second)


def principal_axes(
    vectors: Float[Tensor, "vector dim"],
) -> tuple[Float[Tensor, " dim"], Float[Tensor, "axis dim"], Float[Tensor, " axis"]]:
    """The mean, the principal components and their shares of the variance, in float64."""
    centre = vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(vectors.double() - centre, full_matrices=False)
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    shares = sizes.square() / sizes.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    return centre, directions * signs, shares


Query = str | Float[Tensor, " dim"]
_MAX_SCORES = 1 << 24  # scores in memory at once while questions are answered


class Vectors:
    """Words and a table with one vector per word: `Vectors(words, table)` or `Vectors.read(path)`.

    A zero vector has no direction: its cosine with anything is 0, it is never a neighbour or an
    answer, and asking for its neighbours is an error.

    Only the vector lengths are stored, not a table of unit vectors, because a query reads the whole
    table once either way. The table is not copied, except a trainable Parameter, which may change.
    """

    def __init__(self, words: Sequence[str], table: Tensor) -> None:
        if table.ndim != 2 or len(words) != len(table) or not table.numel():
            raise ShapeError(
                f"a table needs one vector per word; got {len(words)} words, shape "
                f"{tuple(table.shape)}"
            )
        self.words = list(words)
        self.table: Float[Tensor, "word dim"] = (
            table.detach().clone() if table.requires_grad else table
        )
        if table.dtype not in (torch.float32, torch.float64):
            self.table = self.table.float()
        self._row = {word: row for row, word in enumerate(self.words)}
        if len(self._row) < len(words):
            repeated = next(word for row, word in enumerate(self.words) if self._row[word] != row)
            raise RegardError(
                f"the word {repeated!r} occurs more than once; each word has one vector"
            )
        lengths = torch.linalg.vector_norm(self.table, dim=1).double()
        extreme = ((lengths < 1e-12) | ~(lengths < 1e12)).nonzero()[
            :, 0
        ]  # squares may underflow or overflow
        lengths[extreme] = torch.linalg.vector_norm(self.table[extreme].double(), dim=1)
        if not lengths.isfinite().all():
            word = self.words[int(lengths.isfinite().int().argmin())]
            raise RegardError(f"the vector of {word!r} is not finite")
        directed = lengths > torch.finfo(self.table.dtype).tiny
        self._inverse = torch.where(directed, 1 / lengths, 0).to(self.table.dtype)
        self._undirected: Int[Tensor, " zero"] = (~directed).nonzero()[:, 0]

    @classmethod
    def read(cls, path: str | Path, *, format: str | None = None) -> Vectors:
        """Read a 'word2vec', 'word2vec-binary' or 'glove' file, plain or gzipped."""
        return cls(*read_vectors(path, format))

    def write(self, path: str | Path, *, format: str = "word2vec") -> None:
        """Write a float32 file atomically; gzipped if the path ends in .gz."""
        write_vectors(path, self.words, self.table, format)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._row

    def __getitem__(self, word: str) -> Float[Tensor, " dim"]:
        """A copy of the vector of a word."""
        return self.table[self._find(word)].clone()

    def cosine(self, a: Query, b: Query) -> float:
        """The cosine of two words or vectors."""
        return cosine(self._vector(a).double(), self._vector(b).double()).item()

    def similarities(
        self, words: Iterable[str], others: Iterable[str] | None = None
    ) -> Float[Tensor, "row column"]:
        """The cosines of all words with each other, or with `others`."""
        rows = self.table[[self._find(word) for word in words]]
        columns = None if others is None else self.table[[self._find(word) for word in others]]
        return similarities(rows, columns)

    def neighbours(self, query: Query, n: int = 10) -> list[tuple[str, float]]:
        """The n nearest words with their cosines, best first. A word is not its own neighbour."""
        name = repr(query) if isinstance(query, str) else "the query"
        return self._nearest(self._vector(query), n, [query], name)

    def analogy(
        self,
        a: Query,
        b: Query,
        c: Query,
        n: int = 10,
        *,
        excluding: bool = True,
        normalised: bool = True,
    ) -> list[tuple[str, float]]:
        """The n words nearest to b − a + c (a is to b as c is to what?) with their cosines.

        `analogy("man", "king", "woman")` is king − man + woman (3CosAdd; Mikolov et al. 2013).

        The three words are excluded from the answer, as in the literature; otherwise the answer is
        usually b or c. `excluding=False` keeps them.

        `normalised` scales the three vectors to length one first, as in the paper, so that frequent
        words with long vectors do not dominate; `normalised=False` uses the vectors as they are.
        """
        start, end, new = (self._vector(query) for query in (a, b, c))
        if normalised:
            start, end, new = unit(start), unit(end), unit(new)
        return self._nearest(end - start + new, n, [a, b, c] if excluding else [], "b − a + c")

    def accuracy(
        self,
        path: str | Path,
        *,
        excluding: bool = True,
        normalised: bool = True,
        lowercase: bool = False,
    ) -> Accuracy:
        """The accuracy on a file of analogy questions: sections `: name` and lines `a b c d`.

        Questions with a word outside the table count as unknown, neither right nor wrong.
        `lowercase` is for tables of lower-cased words.
        """
        sections = read_questions(path)
        questions = [question for section in sections.values() for question in section]
        if lowercase:
            questions = [(a.lower(), b.lower(), c.lower(), d.lower()) for a, b, c, d in questions]
        outcome = iter(self._answer(questions, excluding, normalised))
        results = (
            tally(name, (next(outcome) for _ in section)) for name, section in sections.items()
        )
        return Accuracy(tuple(results))

    def _answer(
        self, questions: Sequence[Question], excluding: bool, normalised: bool
    ) -> list[bool | None]:
        """Whether each question is answered correctly; None if a word is unknown."""
        outcomes: list[bool | None] = [None] * len(questions)
        known = [
            i for i, question in enumerate(questions) if all(word in self._row for word in question)
        ]
        size = max(1, _MAX_SCORES // len(self))
        for chunk in (known[i : i + size] for i in range(0, len(known), size)):
            rows = torch.tensor(
                [[self._row[word] for word in questions[i]] for i in chunk],
                device=self.table.device,
            )
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
            raise RegardError(
                f"the vector of {name} is {size} and has no direction; use another word or vector"
            )
        scores = self._scores(unit(vector)[None])[0]
        scores[[self._row[word] for word in excluded if isinstance(word, str)]] = -torch.inf
        best, rows = scores.topk(min(n, len(self)))
        pairs = zip(
            rows.tolist(), best.clamp(-1, 1).tolist(), best.isfinite().tolist(), strict=True
        )
        return [(self.words[row], score) for row, score, finite in pairs if finite]

    def _scores(self, directions: Float[Tensor, "question dim"]) -> Float[Tensor, "question word"]:
        """‖direction‖ · cosine with every word; −∞ for zero vectors."""
        scores = (directions @ self.table.T).mul_(self._inverse)
        return scores.index_fill_(1, self._undirected, -torch.inf)

    def _vector(self, query: Query) -> Float[Tensor, " dim"]:
        if isinstance(query, str):
            return self[query]
        if query.shape != self.table.shape[1:]:
            dim, shape = self.table.shape[1], tuple(query.shape)
            raise ShapeError(f"a vector must have {dim} numbers; got shape {shape}")
        return query.detach().to(self.table)

    def _find(self, word: str) -> int:
        if word not in self._row:
            raise UnknownName(f"unknown word {word!r}; {self._suggest(word)}")
        return self._row[word]

    def _suggest(self, word: str) -> str:
        """A similar known word; only words with the same first letter are compared, for speed."""
        near = [
            other for other in (word.lower(), word.capitalize(), word.upper()) if other in self._row
        ]
        if not near:
            alike = (w for w in self.words if w[:1] == word[:1] and abs(len(w) - len(word)) <= 2)
            near = get_close_matches(word, islice(alike, 10_000), n=1)
        if near:
            return f"did you mean {near[0]!r}?"
        return f"the table has {len(self)} words, such as {self.words[0]!r}"
