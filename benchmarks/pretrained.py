"""The two small pretrained models of the package: measures them, or trains them again.

    python benchmarks/pretrained.py measure    # on unseen words
    python benchmarks/pretrained.py transformer --minutes 3.8 --out runs/spelling    # on a GPU
    python benchmarks/pretrained.py recurrent --minutes 3.8 --dropout 0.2 --out runs/recurrent

Both are trained on the default task (English spelling to pronunciation) with the same pairs and
tokenizers. Copy `--out/bundle` to src/regard/data/models/; its card has the error rates on the test
part under "tested".
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import Check, command, machine, report

from regard import bundle
from regard.bundle import Bundle
from regard.config import TextSettings, TrainSettings
from regard.pretrained import MODELS
from regard.text import Corpus, group_references
from regard.training import cmudict, metrics
from regard.training.evaluation import decode
from regard.training.run import Job, run

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

NAMES = {
    "phone_error_rate": "phone error rate",
    "sequence_error_rate": "sequence error rate",
}


def train(options: argparse.Namespace) -> None:
    """Train one model in `options.out`."""
    parts = cmudict.unpack(options.out / "parts")
    size = SIZES[options.family] | {"dropout": options.dropout} | json.loads(options.model)
    settings = TrainSettings(
        minutes=options.minutes, seed=options.seed, batch_tokens=options.batch_tokens
    )
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


def evaluate(trained: Bundle, parts: Path) -> dict[str, float]:
    """Error rates of greedy decoding on the whole test part, in per cent."""
    references = group_references(Corpus(cmudict.unpack(parts)["test"]))
    words, device = list(references), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    longest = 2 * max(map(len, words)) + 10
    outputs = decode(
        trained.model.to(device),
        trained.source,
        trained.target,
        words,
        max_length=longest,
        device=device,
    )
    found = metrics.error_rates("phones", outputs, [references[word] for word in words])
    return {"words": len(words), **{name: round(value, 2) for name, value in found.items()}}


def measure() -> list[Check]:
    """The included models, compared with their cards."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(path.name for path in MODELS.iterdir()):
            trained = bundle.load(MODELS / name)
            found, stated = evaluate(trained, Path(folder) / "parts"), trained.card["tested"]
            for metric in NAMES:  # rounding may change a word
                label, most = (
                    f"{name}: {NAMES[metric]}, % of {found['words']:,} words",
                    stated[metric] + 0.1,
                )
                made.append(Check(label, found[metric], 0.0, most, found[metric] <= most))
    return made


def update_card(folder: Path) -> dict[str, float]:
    """Evaluate a newly trained model and store the figures in its card."""
    trained = bundle.load(folder / "bundle")
    tested = evaluate(trained, folder / "parts")
    plain = json.loads(
        json.dumps(trained.card).replace(f"{folder}/parts/", "")
    )  # without local paths
    family = {"transformer": "Transformer", "recurrent": "recurrent, Bahdanau's attention"}[
        trained.settings.kind
    ]
    on = f"{tested['words']:,} unseen test words"
    quality = [
        {"metric": NAMES[name], "value": tested[name], "unit": "%", "on": on} for name in NAMES
    ]
    facts = {
        "title": f"English spelling → sound ({family})",
        "example": "attention",
        "machine": machine(),
    }
    whole = plain | facts | {"tested": tested, "quality": quality}
    model, settings = trained.model.cpu(), trained.settings
    made = Bundle(model, trained.source, trained.target, settings, whole, template=trained.template)
    bundle.save(folder / "bundle", made)
    return tested


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=["measure", *SIZES])
    parser.add_argument("--out", type=Path, help="folder of the training run")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--batch-tokens", type=int, default=16_384, help="tokens per step")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="{}", help="more model settings, as JSON")
    options = parser.parse_args()
    if options.family == "measure":
        report("pretrained", measure())
        return
    if options.out is None:
        parser.error("--out is missing: the folder to train in")
    train(options)
    dev = bundle.load(options.out / "bundle").card["metrics"]
    print(json.dumps({"family": options.family, "dev": dev, "test": update_card(options.out)}))


if __name__ == "__main__":
    main()
