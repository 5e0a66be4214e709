"""LineAnswers: from lines to answers, around a search over token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from regard.answer import Answer, empty_answer, rejected_answer
from regard.bundle.bundle import Bundle
from regard.calibration import Calibration
from regard.search.hypothesis import Hypothesis
from regard.source_encoder import SourceEncoder, SourceTooLong

EncodedLine = tuple[str, list[int]]
SearchLines = Callable[[Sequence[EncodedLine]], Sequence[Sequence[Hypothesis]]]


class LineAnswers:
    """Encodes sources, and turns hypotheses into answers. A line that is too long is rejected."""

    def __init__(self, bundle: Bundle, encode: SourceEncoder) -> None:
        self._source, self._target = bundle.source, bundle.target
        self._encode = encode
        self._calibration = Calibration.of_card(bundle.card)

    def of_lines(self, lines: Sequence[str], search: SearchLines) -> Iterator[list[Answer]]:
        """The answers to each line, best first and without duplicate texts. Empty and rejected
        lines are not searched; each has one answer, which is empty."""
        answers: list[list[Answer] | None] = []
        searched: list[EncodedLine] = []
        for line in lines:
            try:
                ids = self._encode(line)
            except SourceTooLong as error:
                answers.append([rejected_answer(line, str(error))])
                continue
            answers.append(None if ids else [empty_answer(line)])
            searched += [(line, ids)] if ids else []
        found = zip(searched, search(searched), strict=True)
        for known in answers:
            yield self._distinct(*next(found)) if known is None else known

    def answer(self, source: str, ids: Sequence[int], found: Hypothesis) -> Answer:
        """A hypothesis as an answer."""
        tokens = [self._target.label(id) for id in found.ids]
        is_known = self._source.unknown not in ids
        unknown = [] if is_known else self._source.unknown_symbols(source.strip())
        text = self._target.decode(found.ids)
        parts = found.ids, tokens, found.logps, found.score, unknown
        return Answer(source, text, *parts, calibration=self._calibration)

    def _distinct(self, line: EncodedLine, hypotheses: Sequence[Hypothesis]) -> list[Answer]:
        answers: dict[str, Answer] = {}
        for hypothesis in hypotheses:
            answer = self.answer(*line, hypothesis)
            answers.setdefault(answer.text, answer)
        return list(answers.values())


def accepted(answer: Answer) -> Answer:
    """The answer; raises if its source was rejected."""
    if answer.error is not None:
        raise SourceTooLong(answer.error)
    return answer
