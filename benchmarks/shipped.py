"""Trains the two small models that ship with the package, and measures them on words that no part of training saw.

    python benchmarks/shipped.py transformer --minutes 4 --out runs/spelling
    python benchmarks/shipped.py recurrent --minutes 4 --out runs/spelling-recurrent

Both learn the default task (English spelling to sound) from the same pairs with the same tokenisers. What is left in
`--out/bundle` goes to src/regard/data/models/; its card carries the errors on the test part under "tested".
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from harness import machine

from regard import bundle
from regard.config import Text, Train
from regard.text import Corpus, variants
from regard.train import demo, metrics
from regard.train.evaluate import decode
from regard.train.run import Job, run

SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"width": 128, "heads": 4, "encoder": 3, "decoder": 3, "hidden": 352, "tied": "target"},
    "recurrent": {"width": 192, "attention": "additive", "tied": "target"},
}


def train(options: argparse.Namespace) -> None:
    """One model, left in `options.out`."""
    parts = demo.unpack(options.out / "parts")
    size = SIZES[options.family] | {"dropout": options.dropout} | json.loads(options.model)
    settings = Train(minutes=options.minutes, seed=options.seed, budget=options.budget)
    text = Text(source="characters", target="words")
    command = ["python", "benchmarks/shipped.py", options.family, "--minutes", f"{options.minutes:g}"]
    job = Job(
        Corpus(parts["train"]),
        options.out,
        held_out=Corpus(parts["dev"]),
        family=options.family,
        size="tiny",
        model=size,
        text=text,
        train=settings,
        command=command,
    )
    run(job)


def measure(folder: Path) -> dict[str, Any]:
    """Greedy answers to the whole test part against the dictionary; the card of the bundle keeps the figures."""
    held = bundle.load(folder / "bundle")
    questions = variants(Corpus(demo.unpack(folder / "parts")["test"]))
    words, device = list(questions), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    longest = 2 * max(map(len, words)) + 10
    said = decode(held.model.to(device), held.source, held.target, words, reach={"most": longest}, device=device)
    found = metrics.symbols(said, [questions[word] for word in words], kind=held.target.kind)
    tested = {"words": len(words), **{name: round(value, 2) for name, value in found.items()}}
    plain = json.loads(json.dumps(held.card).replace(f"{folder}/parts/", ""))  # a card names files, not machines
    family = {"transformer": "Transformer", "recurrent": "recurrent, Bahdanau's attention"}[held.settings.kind]
    on = f"{len(words):,} unseen test words"
    names = {"ser": "phone error", "wer": "word error"}
    quality = [{"metric": names[name], "value": tested[name], "unit": "%", "on": on} for name in names]
    facts = {"title": f"English spelling → sound ({family})", "example": "attention", "machine": machine()}
    card = plain | facts | {"tested": tested, "quality": quality}
    bundle.save(folder / "bundle", replace(held, model=held.model.cpu(), card=card))
    return tested


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=list(SIZES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--budget", type=int, default=16_384, help="tokens to a step")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="{}", help="other settings of the model, as JSON")
    options = parser.parse_args()
    train(options)
    dev = bundle.load(options.out / "bundle").card["metrics"]
    print(json.dumps({"family": options.family, "dev": dev, "test": measure(options.out)}))


if __name__ == "__main__":
    main()
