"""One training of the quality benchmark and its figures: by recipe, or by the defaults (`auto`)."""

import concurrent.futures
import gc
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from quality_scores import CONVENTIONS, Convention
from quality_sets import Example, read_examples, read_pairs, write_pairs

from regard import bundle
from regard.bundle import Bundle
from regard.commands.options import read_settings
from regard.config import TextSettings, TrainSettings, parse
from regard.inference import inference_model, search_all
from regard.models import Ensemble
from regard.search import Beam, Greedy, LengthPenalty, Search
from regard.search.search_batches import RATIO
from regard.text import Corpus
from regard.training import checkpoint
from regard.training.display import LineDisplay
from regard.training.run import Job, run

CONFIGS = Path(__file__).parent.parent / "configs"
BATCH_TOKENS = {"cuda": 16_384, "cpu": 4_096}  # source tokens per search batch
LENGTHS = ("minutes", "steps", "epochs")
Result = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One training and evaluation. `overrides` and `run_length` (minutes, steps or epochs) override
    the recipe; `label_sources` also decodes the training sources, for students."""

    name: str
    method: str
    seed: int
    parts: Path
    out: Path
    overrides: tuple[str, ...] = ()
    run_length: dict[str, float] = field(default_factory=dict)
    beam: int | None = None
    length_penalty: float | None = None
    dev_only: bool = False
    label_sources: bool = False
    threads: int | None = None
    command: tuple[str, ...] = ()

    @property
    def convention(self) -> Convention:
        """The convention of the set, with the requested search."""
        search = {"beam": self.beam, "length_penalty": self.length_penalty}
        chosen = {key: value for key, value in search.items() if value is not None}
        return replace(CONVENTIONS[self.name], **chosen)


def job(trial: Trial) -> Job:
    """The job of `regard train`: the recipe with overrides, or the files alone."""
    recipe = CONFIGS / f"{trial.convention.recipe}.toml" if trial.method != "auto" else None
    chosen = read_settings(recipe, list(trial.overrides) if recipe else [])
    if trial.run_length:
        rest = {key: value for key, value in chosen["train"].items() if key not in LENGTHS}
        chosen["train"] = rest | trial.run_length
    return Job(
        Corpus(trial.parts / "train.tsv", header=False),
        trial.out,
        held_out=Corpus(trial.parts / "dev.tsv", header=False),
        family=chosen["model"].pop("kind", "transformer"),
        model=chosen["model"],
        text=parse(TextSettings, chosen["text"], "text"),
        train=parse(TrainSettings, {**chosen["train"], "seed": trial.seed}, "train"),
        command=trial.command,
    )


def attempt(trial: Trial) -> Result:
    """The figures of one trial, or its error: one failure must not lose the other results. They are
    stored with the run, and the same trial reads them again."""
    if trial.threads:
        torch.set_num_threads(trial.threads)
    overrides = [] if trial.method == "auto" else list(trial.overrides)
    identity = {
        "set": trial.name,
        "method": trial.method,
        "seed": trial.seed,
        "overrides": overrides,
    }
    stored, key = trial.out / "result.json", repr(replace(trial, threads=None))
    if stored.exists() and (known := json.loads(stored.read_text()))["trial"] == key:
        return known["result"]
    start = time.perf_counter()
    try:
        trial.out.mkdir(parents=True, exist_ok=True)
        with open(trial.out / "log.txt", "w", encoding="utf-8") as log:
            card = run(job(trial), LineDisplay(log))
        saved = checkpoint.read(trial.out / "checkpoints")
        trained = saved.progress["seconds"] if saved else 0.0  # of all its parts, if it was resumed
        middle = time.perf_counter()
        found = evaluate([trial.out / "bundle"], trial)
        measuring = time.perf_counter() - middle
        if trial.label_sources:
            label_sources(trial)
    except Exception as error:
        traceback.print_exc()
        return {**identity, "error": f"{type(error).__name__}: {error}"}
    finally:  # the process runs other trials, and others share its GPU
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    facts = {key: card[key] for key in ("parameters", "steps", "tokens", "seconds")}
    facts["planned_steps"] = card["of"]
    decisions = [
        line.replace(f"{trial.parts}/", "") for line in card["decisions"]
    ]  # no local paths
    model = bundle.load(trial.out / "bundle").settings.model_dump(mode="json")
    chosen = {"decisions": decisions, "settings": {**card["settings"], "model": model}}
    chosen["command"] = list(trial.command)
    # It may have started in an earlier process.
    total = round(max(time.perf_counter() - start, trained + measuring), 1)
    seconds = {"trained_seconds": round(trained, 1), "total_seconds": total}
    result = {**identity, **facts, **seconds, **found, **chosen}
    stored.write_text(json.dumps({"trial": key, "result": result}, ensure_ascii=False))
    return result


def outcomes(
    trials: Sequence[Trial],
    parallel: int,
    more: Callable[[Result], Sequence[Trial]] = lambda result: (),
) -> Iterator[Result]:
    """Each result as it is ready, from parallel processes; `more` gives trials that follow it."""
    threads = max(1, (os.cpu_count() or 1) // parallel)
    with ProcessPoolExecutor(
        parallel, mp_context=get_context("spawn"), initializer=end_with_parent
    ) as pool:
        waiting = {pool.submit(attempt, replace(trial, threads=threads)) for trial in trials}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, return_when=FIRST_COMPLETED)
            for result in (one.result() for one in done):
                waiting |= {
                    pool.submit(attempt, replace(trial, threads=threads)) for trial in more(result)
                }
                yield result


def end_with_parent() -> None:
    """End this process when its parent ends, killed or not."""
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def evaluate(folders: Sequence[Path], trial: Trial) -> Result:
    """The figures of a bundle or an ensemble of several, on dev and, unless `dev_only`, on test."""
    bundles = [bundle.load(folder, _device()) for folder in folders]
    model = bundles[0]
    if len(bundles) > 1:
        model = model.with_model(Ensemble([one.model for one in bundles]))
    figures: dict[str, float] = {}
    details: Result = {}
    for part, examples in read_examples(trial.parts).items():
        if trial.dev_only and part != "dev":
            continue
        scores = trial.convention.score(decode(model, examples, trial.convention), examples)
        name = part.removeprefix("test ")
        for metric, value in scores.items():
            (figures if isinstance(value, float) else details)[f"{name} {metric}"] = value
    return {"figures": figures, "details": details}


def label_sources(trial: Trial) -> None:
    """Write the outputs of the model for its training sources, for students."""
    sources = dict.fromkeys(source for source, _ in read_pairs(trial.parts / "train.tsv"))
    examples = [Example(source, []) for source in sources]
    trained = bundle.load(trial.out / "bundle", _device())
    outputs = decode(trained, examples, trial.convention)
    labels = [(source, some[0]) for source, some in zip(sources, outputs, strict=True) if some[0]]
    write_pairs(trial.out / "outputs.tsv", labels)


@torch.inference_mode()
def decode(trained: Bundle, examples: Sequence[Example], convention: Convention) -> list[list[str]]:
    """The outputs of the search for each example, best first, in large batches."""
    device = next(trained.model.parameters()).device
    most = 2 * trained.card["longest"]["target"] + 10
    # Translations are rarely twice as long as their source; SCAN's actions are far longer.
    ratio = RATIO if convention.length_penalty else float(most)
    sources = [trained.source.encode(example.source) for example in examples]
    limits = {"max_length": most, "ratio": ratio}
    where = {"tokens": BATCH_TOKENS[device.type], "device": device}
    found = search_all(
        _search(convention), inference_model(trained.model), sources, **limits, **where
    )
    texts = (
        [trained.target.decode(hypothesis.ids) for hypothesis in some.hypotheses] for some in found
    )
    return [list(dict.fromkeys(some)) or [""] for some in texts]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _search(convention: Convention) -> Search:
    if convention.beam == 1 and convention.best == 1:
        return Greedy()
    return Beam(
        max(convention.beam, convention.best),
        convention.best,
        LengthPenalty(convention.length_penalty),
    )
