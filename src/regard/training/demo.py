"""The demo: train on the default task, then show error rates, words and an alignment."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from regard import bundle
from regard.config import TrainSettings, parse
from regard.ragged import Ragged
from regard.search import Greedy, length_limits
from regard.teacher_forcing import alignment, record_attention
from regard.text import Corpus, group_references, with_begin, with_source_tokens
from regard.training.cmudict import unpack
from regard.training.evaluation import HeldOutSet, decode
from regard.training.run import Job, run

SHADES = " ░▒▓█"
MAX_LENGTH = 60


def demonstrate(*, minutes: float, out: Path, family: str, device: str) -> None:
    """Train or resume, then print the test error rates, ten words and an alignment."""
    parts = unpack(out / "dictionary")
    job = Job(
        Corpus(parts["train"]),
        out,
        Corpus(parts["dev"]),
        family=family,
        train=parse(TrainSettings, {"minutes": minutes, "evaluations": 4}, "train"),
        device=device,
        command=["regard", *sys.argv[1:]],
    )
    run(job)
    trained, cpu = bundle.load(out / "bundle"), torch.device("cpu")
    test = group_references(Corpus(parts["test"]))
    held_out = HeldOutSet(trained.source, trained.target, test, "phones", MAX_LENGTH)
    metrics = held_out.evaluate(trained.model, cpu).metrics
    print(
        f"\nOn {len(test):,} unseen test words, {metrics['phone_error_rate']:.1f} % of the phones "
        f"and {metrics['sequence_error_rate']:.1f} % of the words are wrong.\n"
    )
    words = list(test)[:: len(test) // 10][:10]
    tokenizers = trained.source, trained.target
    outputs = decode(trained.model, *tokenizers, words, max_length=MAX_LENGTH, device=cpu)
    width = max(len(word) for word in words)
    for word, output in zip(words, outputs, strict=True):
        correct = output in test[word]
        reference = "" if correct else f"   (reference: {test[word][0]})"
        print(f"  {'✓' if correct else '✗'} {word:{width}}  {output}{reference}")
    print("\nDecoder attention to the letters, phone by phone:\n")
    print(draw_alignment(trained, "attention"))
    print(next_steps(out, parts["test"]))


def next_steps(out: Path, test: Path) -> str:
    """Commands to try after the demo."""
    commands = [
        (f"regard predict {out / 'bundle'} attention", "transcribe any word, file or pipe"),
        (f"regard evaluate {out / 'bundle'} {test}", "errors by length, worst mistakes"),
        ("regard demo --minutes 30 --out runs/longer", "train longer for a better model"),
        ("regard demo --family recurrent --out runs/rnn", "a recurrent model with attention"),
        ("regard train your-pairs.tsv", "train on your own data"),
    ]
    lines = [f"  {command}\n      {purpose}" for command, purpose in commands]
    return "\n".join([f"\nThe model is in {out / 'bundle'}. Next:", *lines])


def draw_alignment(trained: bundle.Bundle, word: str) -> str:
    """The attention of each phone to the letters of a word, as shades."""
    source = with_source_tokens(Ragged.of([torch.tensor(trained.source.encode(word))]))
    output = Greedy()(trained.model, source, length_limits(source.lengths))[0].hypotheses[0].ids
    prefix = with_begin(Ragged.of([torch.tensor(output, dtype=torch.long)]))
    weights = alignment(trained.model, record_attention(trained.model, source, prefix))
    letters = [trained.source.label(i) for i in source.values.tolist()[:-1]] + ["⏎"]
    phones = [trained.target.label(i) for i in output] + ["⏎"]
    width = max(map(len, phones))
    lines = ["    " + " " * width + "".join(f"{letter:^3}" for letter in letters)]
    for phone, row in zip(phones, weights, strict=True):
        shades = (min(int(weight * len(SHADES)), len(SHADES) - 1) for weight in row.tolist())
        lines.append(f"  {phone:>{width}}  " + "".join(SHADES[shade] * 3 for shade in shades))
    return "\n".join(lines)
