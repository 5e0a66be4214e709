"""`regard score`: the model's log-probability of given targets."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from itertools import tee
from pathlib import Path

from regard.answer import Answer
from regard.commands.formats import SPACES, json_number
from regard.commands.progress import Progress
from regard.loading import load_pipeline
from regard.text import Corpus, Pair


def score(
    folder: Path,
    pairs: Iterable[Pair],
    *,
    engine: str = "auto",
    device: str = "auto",
    as_json: bool = False,
    languages: Mapping[str, str | None] | None = None,
) -> None:
    """Write log-probability, source and target of each pair as it is scored; perplexity last."""
    pipeline = load_pipeline(folder, device=device, engine=engine)
    reading = pairs.read() if isinstance(pairs, Corpus) else None  # counts the lines it skips
    unknown = pipeline.bundle.target.unknown
    count = tokens = 0
    total = 0.0
    out = sys.stdout.buffer
    with Progress() as progress:
        # Read twice, because an answer has the target as the tokenizer decodes it.
        given, scored = tee(pairs if reading is None else reading)
        for pair, answer in zip(given, pipeline.scores(scored, **languages or {}), strict=True):
            count += 1
            tokens += len(answer.logps)
            total += answer.logp
            if unknown in answer.ids or answer.unknown:
                progress.warn("more pairs with unknown symbols", f"pair {count:,}: unknown symbols")
            out.write(f"{_format_pair(pair, answer, as_json=as_json)}\n".encode())
            progress.advance(1)
        out.flush()
        if reading is not None and reading.problems:
            progress.say(reading.summary())
        perplexity = math.exp(min(700.0, -total / max(1, tokens)))
        progress.say(
            f"{count:,} pairs, {tokens:,} tokens (with end tokens), "
            f"log-probability {total:,.2f}, perplexity {perplexity:.4f}"
        )


def _format_pair(pair: Pair, answer: Answer, *, as_json: bool) -> str:
    if as_json:
        fields = {
            "source": pair.source,
            "target": pair.target,
            "tokens": answer.tokens,
            "logps": [json_number(logp) for logp in answer.logps],
            "logp": json_number(answer.logp),
        }
        return json.dumps(fields, ensure_ascii=False)
    columns = (f"{answer.logp:.4f}", pair.source, pair.target)
    return "\t".join(column.translate(SPACES) for column in columns)
