"""The pretrained models of the package: measures them, or trains them again.

    python benchmarks/pretrained.py measure --data DIR    # on unseen words and sentences
    python benchmarks/pretrained.py spelling --minutes 3.8 --out runs/spelling    # on a GPU
    python benchmarks/pretrained.py spelling-recurrent --minutes 3.8 --out runs/recurrent
    python benchmarks/pretrained.py english-german --minutes 6.3 --data DIR --out runs/german
    python benchmarks/pretrained.py english-german-recurrent --data DIR --out runs/german-recurrent

The spelling models learn the default task (English spelling to pronunciation), the others the
English–German sentences of Tatoeba; DIR is the folder with the data sets of docs/quality.md. The
two models of a task have the same pairs and tokenizers. Copy `--out/bundle` to
src/regard/data/models/NAME; its card has the figures on the test part under "tested". With
`--card-only`, a run that was trained before gets its card. A film of the training is reduced with
`regard film`, and belongs beside the model as NAME.film.safetensors.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness import Check, command, machine, report
from quality_sets import tatoeba

import regard
from regard import bundle
from regard.bundle import Bundle
from regard.config import TextSettings, TrainSettings
from regard.disk import write_atomically
from regard.pretrained import MODELS
from regard.text import Corpus, group_references
from regard.text.input_alphabet import describe_input
from regard.training import cmudict, metrics
from regard.training.held_out_examples import choose_examples
from regard.training.run import Job, run

FAMILIES = {"transformer": "Transformer", "recurrent": "recurrent, Bahdanau's attention"}
CHARACTERS = TextSettings(source_tokenizer="characters", target_tokenizer="words")
BPE = TextSettings(
    source_tokenizer="bpe", target_tokenizer="bpe", vocabulary_size=4_000, shared_vocabulary=True
)


class Task(NamedTuple):
    """What a model learns, and how its page introduces it."""

    title: str
    example: str
    text: TextSettings
    test_set: str
    attribution: str
    metrics: Mapping[str, str]  # as named in the card
    decoding: Mapping[str, Any]  # of the test


SPELLING = Task(
    "English spelling → sound",
    "attention",
    CHARACTERS,
    "unseen test words",
    "CMU Pronouncing Dictionary, Carnegie Mellon University, BSD-2-Clause",
    {"phone_error_rate": "phone error rate", "sequence_error_rate": "sequence error rate"},
    {"beam": 1},
)
TRANSLATION = Task(
    "English → German",
    "I have never seen her before.",
    BPE,
    "sentences of the Tatoeba test set v2020-07-28",
    "Sentences of Tatoeba (tatoeba.org) and its contributors, CC BY 2.0 FR",
    {"bleu": "BLEU", "chrf": "chrF"},
    {},
)


class Recipe(NamedTuple):
    """The task, family and model settings of an included model."""

    task: Task
    family: str
    model: dict[str, Any]


RECIPES = {
    "spelling": Recipe(
        SPELLING,
        "transformer",
        {
            "width": 128,
            "heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
            "ffn_width": 352,
            "dropout": 0.1,
            "tie_embeddings": "target",
        },
    ),
    "spelling-recurrent": Recipe(
        SPELLING, "recurrent", {"width": 192, "dropout": 0.2, "tie_embeddings": "target"}
    ),
    "english-german": Recipe(
        TRANSLATION,
        "transformer",
        {
            "width": 128,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "ffn_width": 352,
            "dropout": 0.05,
            "tie_embeddings": "all",
        },
    ),
    "english-german-recurrent": Recipe(
        TRANSLATION, "recurrent", {"width": 160, "dropout": 0.1, "tie_embeddings": "all"}
    ),
}


def unpack(task: Task, data: Path | None, folder: Path) -> dict[str, Path]:
    """The train, dev and test pairs of a task, as TSV files in a folder."""
    if task is SPELLING:
        return cmudict.unpack(folder)
    assert data is not None
    parts = tatoeba(data)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.tsv" for name in ("train", "dev", "test")}
    sides = {"dev": parts.dev, "test": parts.tests["test"]}
    pairs = {
        name: [(one.source, one.references[0]) for one in some] for name, some in sides.items()
    }
    for name, path in paths.items():
        lines = (
            f"{source}\t{target}\n" for source, target in {"train": parts.train, **pairs}[name]
        )
        write_atomically(path, "".join(lines))
    return paths


def train(recipe: Recipe, options: argparse.Namespace) -> None:
    """Train one model in `options.out`."""
    parts = unpack(recipe.task, options.data, options.out / "parts")
    job = Job(
        Corpus(parts["train"]),
        options.out,
        held_out=Corpus(parts["dev"]),
        family=recipe.family,
        size="tiny",
        model=recipe.model | json.loads(options.model),
        text=recipe.task.text,
        train=TrainSettings(
            minutes=options.minutes, seed=options.seed, batch_tokens=options.batch_tokens
        ),
        command=command("pretrained", options),
    )
    run(job)


def evaluate(task: Task, model: Path, test: Path) -> dict[str, Any]:
    """The metrics on the whole test part."""
    references = group_references(Corpus(test))
    sources = list(references)
    pipeline = regard.load(model, device="cpu", long="allow")
    search = pipeline.search(**task.decoding)
    outputs = [answer.text for answer in pipeline.many(sources, search)]
    kind = pipeline.bundle.card["task"]
    found = metrics.measure(kind, outputs, [references[source] for source in sources])
    return {"sources": len(sources)} | {name: round(found[name], 2) for name in task.metrics}


def measure(data: Path | None) -> list[Check]:
    """The included models, compared with their cards; translation models only with their data."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (task, _, _) in RECIPES.items():
            if task is TRANSLATION and data is None:
                print(f"{name}: not measured; --data DIR has its test set")
                continue
            parts = unpack(task, data, Path(folder) / task.title)
            stated = json.loads((MODELS / name / "card.json").read_text())["tested"]
            found = evaluate(task, MODELS / name, parts["test"])
            for metric, label in task.metrics.items():
                shown = f"{name}: {label} on {found['sources']:,} {task.test_set}"
                value, card = found[metric], stated[metric]
                if metric.endswith("error_rate"):  # rounding may change an output
                    made.append(Check(f"{shown}, %", value, 0.0, card + 0.1, value <= card + 0.1))
                else:
                    made.append(Check(shown, value, 100.0, card - 0.1, value >= card - 0.1))
    return made


def update_card(recipe: Recipe, folder: Path, data: Path | None, trained_on: str) -> dict[str, Any]:
    """Evaluate a trained model and store the figures and its introduction in its card."""
    task, parts = recipe.task, unpack(recipe.task, data, folder / "parts")
    trained = bundle.load(folder / "bundle")
    tested = evaluate(task, folder / "bundle", parts["test"])
    card = _without_folders(trained.card)
    dev = group_references(Corpus(parts["dev"]))
    targets = [target for some in dev.values() for target in some]
    on = f"{tested['sources']:,} {task.test_set}"
    facts = {
        "title": f"{task.title} ({FAMILIES[recipe.family]})",
        "example": task.example,
        "machine": trained_on,
        "attribution": task.attribution,
        "examples": choose_examples(list(dev), trained.source),
        "input": {
            "source": describe_input(trained.source, list(dev)),
            "target": describe_input(trained.target, targets),
        },
        "tested": tested,
        "quality": [
            {"metric": label, "value": tested[name], "unit": _unit(name), "on": on}
            for name, label in task.metrics.items()
        ],
    }
    made = Bundle(
        trained.model.cpu(),
        trained.source,
        trained.target,
        trained.settings,
        card | facts,
        template=trained.template,
    )
    bundle.save(folder / "bundle", made)
    return tested


def _unit(metric: str) -> str:
    return "%" if metric.endswith("error_rate") else ""


def _without_folders(value: Any) -> Any:
    """The same facts with the names of files only."""
    if isinstance(value, dict):
        return {name: _without_folders(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    if isinstance(value, str) and value.startswith("/"):
        first, *rest = value.split(" ")
        return " ".join([Path(first).name, *rest])
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=["measure", *RECIPES])
    parser.add_argument("--out", type=Path, help="folder of the training run")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--batch-tokens", type=int, default=16_384, help="tokens per step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="{}", help="other model settings, as JSON")
    parser.add_argument("--card-only", action="store_true", help="do not train; write the card")
    parser.add_argument("--trained-on", help="with --card-only: the machine, if not this one")
    options = parser.parse_args()
    if options.name == "measure":
        report("pretrained", measure(options.data))
        return
    recipe = RECIPES[options.name]
    if options.out is None:
        parser.error("--out is missing: the folder to train in")
    if recipe.task is TRANSLATION and options.data is None:
        parser.error("--data is missing: the folder with tatoeba-en-de")
    if not options.card_only:
        train(recipe, options)
    tested = update_card(recipe, options.out, options.data, options.trained_on or machine())
    dev = bundle.load(options.out / "bundle").card["metrics"]
    print(json.dumps({"name": options.name, "dev": dev, "test": tested}))


if __name__ == "__main__":
    main()
