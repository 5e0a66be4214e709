"""The demo: trains on the default task and shows what came of it: errors, words, an alignment, what to try next."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from regard import bundle
from regard.config import TrainSettings, parse
from regard.ragged import Ragged
from regard.search import Greedy, alignment, length_limits, record_attention
from regard.text import Corpus, group_references, with_begin, with_end
from regard.train.cmudict import unpack
from regard.train.evaluation import Exam, decode
from regard.train.run import Job, run

SHADES = " ░▒▓█"


def demonstrate(*, minutes: float, out: Path, family: str, device: str) -> None:
    """Train (or go on, or only show what is there), then print the test errors, ten words and an alignment."""
    parts = unpack(out / "dictionary")
    train = parse(TrainSettings, {"minutes": minutes, "evaluations": 4}, "train")
    command = ["regard", *sys.argv[1:]]
    job = Job(
        Corpus(parts["train"]), out, Corpus(parts["dev"]), family=family, train=train, device=device, command=command
    )
    run(job)
    made = bundle.load(out / "bundle")
    test = group_references(Corpus(parts["test"]))
    exam = Exam(made.source, made.target, test, "symbols", 60)
    found, _ = exam.take(made.model, torch.device("cpu"))
    print(
        f"\nOn {len(test):,} test words it never saw, {found['ser']:.1f} % of the phones are wrong "
        f"and {found['wer']:.1f} % of the words.\n"
    )
    words = list(test)[:: len(test) // 10][:10]
    answers = decode(made.model, made.source, made.target, words, reach={"most": 60}, device=torch.device("cpu"))
    wide = max(len(word) for word in words)
    for word, said in zip(words, answers, strict=True):
        right = said in test[word]
        print(f"  {'✓' if right else '✗'} {word:{wide}}  {said}" + ("" if right else f"   (right: {test[word][0]})"))
    print("\nWhere it looked, phone by phone (decoder's attention to the letters):\n")
    print(drawing(made, "attention"))
    print(
        f"\nThe model is in {out / 'bundle'}. Next:\n"
        f"  regard predict {out / 'bundle'} attention      what it says to any word, file or pipe\n"
        f"  regard evaluate {out / 'bundle'} {parts['test']}\n"
        "                                                 every test word: errors by length, the worst mistakes\n"
        "  regard demo --minutes 30 --out runs/longer     the same, better\n"
        "  regard demo --family recurrent --out runs/rnn  a recurrent model with Bahdanau's attention\n"
        "  regard train your-pairs.tsv                    your own data"
    )


def drawing(made: bundle.Bundle, word: str) -> str:
    """The attention of each phone to the letters of a word, as shades."""
    source = with_end(Ragged.of([torch.tensor(made.source.encode(word))]))
    said = Greedy()(made.model, source, length_limits(source.lengths))[0].hypotheses[0].ids
    seen = record_attention(made.model, source, with_begin(Ragged.of([torch.tensor(said, dtype=torch.long)])))
    weights = alignment(made.model, seen)
    letters = [made.source.label(i) for i in source.values.tolist()[:-1]] + ["⏎"]
    phones = [made.target.label(i) for i in said] + ["⏎"]
    wide = max(map(len, phones))
    lines = ["    " + " " * wide + "".join(f"{letter:^3}" for letter in letters)]
    for phone, row in zip(phones, weights, strict=True):
        cells = "".join(SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)] * 3 for weight in row.tolist())
        lines.append(f"  {phone:>{wide}}  {cells}")
    return "\n".join(lines)
