"""Score: what the model thinks of given targets; what `regard score` does."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from itertools import tee
from pathlib import Path

from regard.commands.formats import SPACES, number
from regard.commands.loading import opened
from regard.commands.progress import Progress
from regard.text import UNKNOWN, Corpus, Pair


def score(folder: Path, pairs: Iterable[Pair], *, device: str = "auto", as_json: bool = False) -> None:
    """A line for each pair as it is scored: log-probability, source, target; the perplexity at the end."""
    pipeline = opened(folder, device=device)
    reading = pairs.read() if isinstance(pairs, Corpus) else None  # which knows what was left out
    count = tokens = 0
    total = 0.0
    out = sys.stdout.buffer
    with Progress() as progress:
        # Twice, for an answer holds what the tokeniser makes of a target, not the target itself.
        given, asked = tee(pairs if reading is None else reading)
        for pair, answer in zip(given, pipeline.scores(asked), strict=True):
            count, tokens, total = count + 1, tokens + len(answer.logps), total + answer.logp
            if UNKNOWN in answer.ids or answer.unknown:
                progress.warn("more pairs hold unknown symbols", f"pair {count:,} holds symbols unknown to the model")
            if as_json:
                fields = {
                    "source": pair.source,
                    "target": pair.target,
                    "tokens": answer.tokens,
                    "logps": [number(logp) for logp in answer.logps],
                    "logp": number(answer.logp),
                }
                line = json.dumps(fields, ensure_ascii=False)
            else:
                columns = (f"{answer.logp:.4f}", pair.source, pair.target)
                line = "\t".join(column.translate(SPACES) for column in columns)
            out.write(f"{line}\n".encode())
            progress.advance(1)
        out.flush()
        if reading is not None and reading.problems:
            progress.say(reading.summary())
        perplexity = math.exp(min(700.0, -total / max(1, tokens)))
        progress.say(
            f"{count:,} pairs, {tokens:,} tokens (each end counts), log-probability {total:,.2f}, "
            f"perplexity {perplexity:.4f}"
        )
