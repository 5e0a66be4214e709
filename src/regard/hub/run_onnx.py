"""Runs a model that Regard exported to ONNX: greedy and beam search in numpy.

>>> python run_onnx.py "a text" --beam 4        # or one text per line on standard input

Needs numpy, onnxruntime and tokenizers; all options are in `config.json` beside the model.
"""

import argparse
import json
import math
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class OnnxRunner:
    """An exported folder. A state is a dictionary of arrays with one row per hypothesis."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in ("encoder.onnx", "decoder.onnx")
        )
        self.inputs = {one.name: one.shape for one in self.decoder.get_inputs()}
        self.past = [name for name in self.inputs if name.startswith("past.")]

    def start(self, source: list[int], rows: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Logits of the first token and the state, from source ids with prefix and suffix."""
        ids, lengths = np.array([source] * rows, np.int64), np.full(rows, len(source), np.int64)
        names = [one.name for one in self.encoder.get_outputs()]
        found = self.encoder.run(names, {"ids": ids, "lengths": lengths})
        state = {"lengths": lengths, **dict(zip(names, found, strict=True))}
        for name in set(self.past) - set(names):  # the KV cache is empty at first
            sizes = [size if isinstance(size, int) else 0 for size in self.inputs[name][1:]]
            state[name] = np.zeros([rows, *sizes], np.float32)
        for token in self.config["start"]:
            logits, state = self.step(np.full(rows, token), state)
        return logits, state

    def step(self, tokens: np.ndarray, state: dict[str, np.ndarray]) -> tuple[np.ndarray, Any]:
        """Logits of the next token after one more token in each row, and the new state."""
        given = {name: state[name] for name in self.inputs if name != "tokens"}
        logits, *present = self.decoder.run(None, {"tokens": tokens, **given})
        return logits, {**state, **dict(zip(self.past, present, strict=True))}

    def search(
        self, source: list[int], limit: int, beam: int = 4, alpha: float = 0.0
    ) -> list[tuple[float, list[int]]]:
        """Scores log p / lengthᵅ and ids without the end, best first. A beam of 1 is greedy."""
        end, done = self.config["end"], []
        ids: list[list[int]] = [[]] * beam
        totals = np.where(np.arange(beam) == 0, 0.0, -math.inf)  # one hypothesis at first
        logits, state = self.start(source, beam)
        for length in range(1, limit + 2):
            scores = totals[:, None] + log_softmax(logits)
            scores[:, self.config["banned"]] = -math.inf
            if length > limit:  # only the end is allowed
                scores[:, np.arange(scores.shape[1]) != end] = -math.inf
            order = np.argsort(-scores, axis=None, kind="stable")[: 2 * beam]
            rows, tokens = np.divmod(order, scores.shape[1])
            totals, ends = scores[rows, tokens], tokens == end
            for rank in np.flatnonzero(ends[:beam] & (totals[:beam] > -math.inf)):
                done.append((float(totals[rank]) / length**alpha, ids[rows[rank]]))
            rows, tokens, totals = (part[~ends][:beam] for part in (rows, tokens, totals))
            reach = totals[0] / max((length + 1) ** alpha, (limit + 1) ** alpha)
            if done and (beam == 1 or reach <= max(done)[0]):  # no better one is possible
                break
            ids = [[*ids[row], int(token)] for row, token in zip(rows, tokens, strict=True)]
            chosen = {name: state[name][rows] for name in self.past}
            logits, state = self.step(tokens, {**state, **chosen})
        return sorted(done, reverse=True)[:beam]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The log-probabilities of each row."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def main() -> None:
    """Print the output of each text."""
    parser = argparse.ArgumentParser(description="Greedy and beam search with a model in ONNX.")
    parser.add_argument("text", nargs="*", help="texts (default: the lines of standard input)")
    parser.add_argument("--beam", type=int, default=4, help="beam size (1 = greedy; default: 4)")
    parser.add_argument("--length-penalty", type=float, help="α of log p / lengthᵅ")
    options, folder = parser.parse_args(), Path(__file__).parent
    runner = OnnxRunner(folder)
    config = {**runner.config}
    if options.length_penalty is not None:
        config["length_penalty"] = options.length_penalty
    source, target = (
        Tokenizer.from_file(str(folder / config[f"{side}_tokenizer"]))
        for side in ("source", "target")
    )
    for line in options.text or sys.stdin:
        ids = source.encode(line.strip(), add_special_tokens=False).ids
        if not ids:
            print(flush=True)
            continue
        ids = [*config["source_prefix"], *ids, *config["source_suffix"]]
        if len(ids) > (config["max_tokens"] or len(ids)):
            sys.exit(f"a text has {len(ids)} tokens; this model reads {config['max_tokens']}")
        limit = min(math.ceil(config["ratio"] * len(ids)) + config["extra"], config["max_length"])
        found = runner.search(ids, limit, options.beam, config["length_penalty"])[0][1]
        text = target.decode([id for id in found if id not in config["silent"]])
        if config.get("compose"):  # tokens are letters, marks and jamo
            text = unicodedata.normalize("NFC", text)
        print(text.replace(config["unknown"], "\N{REPLACEMENT CHARACTER}"), flush=True)


if __name__ == "__main__":
    main()
