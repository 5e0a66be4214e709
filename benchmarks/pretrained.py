"""The two small models that ship with the package: measures them, or trains such ones anew.

    python benchmarks/pretrained.py measure                                         # on words they never saw
    python benchmarks/pretrained.py transformer --minutes 3.8 --out runs/spelling   # on a GPU, as the included model
    python benchmarks/pretrained.py recurrent --minutes 3.8 --dropout 0.2 --out runs/spelling-recurrent

Both learn the default task (English spelling to sound) from the same pairs with the same tokenisers. What is left in
`--out/bundle` goes to src/regard/data/models/; its card carries the errors on the test part under "tested".
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from harness import Check, command, machine, report

from regard import bundle
from regard.bundle import Bundle
from regard.config import TextSettings, TrainSettings
from regard.pretrained import MODELS
from regard.text import Corpus, group_references
from regard.train import cmudict as demo
from regard.train import metrics
from regard.train.evaluation import decode
from regard.train.run import Job, run

SIZES: dict[str, dict[str, Any]] = {
    "transformer": {
        "width": 128,
        "heads": 4,
        "encoder_layers": 3,
        "decoder_layers": 3,
        "ffn_width": 352,
        "tie_embeddings": "target",
    },
    "recurrent": {"width": 192, "attention": "additive", "tie_embeddings": "target"},
}

NAMES = {"ser": "phone error", "wer": "word error"}


def train(options: argparse.Namespace) -> None:
    """One model, left in `options.out`."""
    parts = demo.unpack(options.out / "parts")
    size = SIZES[options.family] | {"dropout": options.dropout} | json.loads(options.model)
    settings = TrainSettings(minutes=options.minutes, seed=options.seed, batch_tokens=options.batch_tokens)
    text = TextSettings(source_tokenizer="characters", target_tokenizer="words")
    job = Job(
        Corpus(parts["train"]),
        options.out,
        held_out=Corpus(parts["dev"]),
        family=options.family,
        size="tiny",
        model=size,
        text=text,
        train=settings,
        command=command("pretrained", options),
    )
    run(job)


def tests(held: Bundle, parts: Path) -> dict[str, float]:
    """Greedy answers to the whole test part against the dictionary: errors in per cent."""
    questions = group_references(Corpus(demo.unpack(parts)["test"]))
    words, device = list(questions), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    longest = 2 * max(map(len, words)) + 10
    said = decode(held.model.to(device), held.source, held.target, words, reach={"most": longest}, device=device)
    found = metrics.symbols(said, [questions[word] for word in words], kind=held.target.kind)
    return {"words": len(words), **{name: round(value, 2) for name, value in found.items()}}


def measure() -> list[Check]:
    """What ships, against what its cards say."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(path.name for path in MODELS.iterdir()):
            held = bundle.load(MODELS / name)
            found, said = tests(held, Path(folder) / "parts"), held.card["tested"]
            for metric in ("ser", "wer"):  # answers may differ in the last bit between machines, and so in a word
                told, within = f"{name}: {NAMES[metric]}, % of {found['words']:,} words", said[metric] + 0.1
                made.append(Check(told, found[metric], 0.0, within, found[metric] <= within))
    return made


def card(folder: Path) -> dict[str, float]:
    """The figures of a model that was just trained; the card of its bundle keeps them."""
    held = bundle.load(folder / "bundle")
    tested = tests(held, folder / "parts")
    plain = json.loads(json.dumps(held.card).replace(f"{folder}/parts/", ""))  # a card names files, not machines
    family = {"transformer": "Transformer", "recurrent": "recurrent, Bahdanau's attention"}[held.settings.kind]
    on = f"{tested['words']:,} unseen test words"
    quality = [{"metric": NAMES[name], "value": tested[name], "unit": "%", "on": on} for name in NAMES]
    facts = {"title": f"English spelling → sound ({family})", "example": "attention", "machine": machine()}
    whole = plain | facts | {"tested": tested, "quality": quality}
    bundle.save(folder / "bundle", replace(held, model=held.model.cpu(), card=whole))
    return tested


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["measure", *SIZES])
    parser.add_argument("--out", type=Path, help="where a model is trained")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--batch-tokens", type=int, default=16_384, help="tokens to a step")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="{}", help="other settings of the model, as JSON")
    options = parser.parse_args()
    if options.family == "measure":
        report("pretrained", measure())
        return
    if options.out is None:
        parser.error("--out is missing: the folder to train in")
    train(options)
    dev = bundle.load(options.out / "bundle").card["metrics"]
    print(json.dumps({"family": options.family, "dev": dev, "test": card(options.out)}))


if __name__ == "__main__":
    main()
