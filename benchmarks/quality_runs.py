"""One training of the quality benchmark and its figures: by the set's recipe, or by the defaults alone (`auto`)."""

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
from quality_sets import Question, read_pairs, read_questions, write_pairs

from regard import bundle
from regard.bundle import Bundle
from regard.commands.options import read_settings
from regard.config import TextSettings, TrainSettings, parse
from regard.inference import inference_model, search_all
from regard.models import Ensemble
from regard.search import Beam, Greedy, LengthPenalty, Search
from regard.search.length_batching import RATIO
from regard.text import Corpus
from regard.train import checkpoint
from regard.train.run import Job, run
from regard.train.view import Plain

CONFIGS = Path(__file__).parent.parent / "configs"
TOGETHER = {"cuda": 16_384, "cpu": 4_096}  # source tokens searched together
ENDS = ("minutes", "steps", "epochs")
Result = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """What one process trains and measures. `overrides` and `ends` (minutes, steps or epochs) go over the recipe; to
    `teach` is also to answer the sources it learned from."""

    name: str
    way: str
    seed: int
    parts: Path
    out: Path
    overrides: tuple[str, ...] = ()
    ends: dict[str, float] = field(default_factory=dict)
    beam: int | None = None
    length: float | None = None
    dev_only: bool = False
    teach: bool = False
    threads: int | None = None
    command: tuple[str, ...] = ()

    @property
    def convention(self) -> Convention:
        """The set's, with the search that was asked for."""
        asked = {"beam": self.beam, "length": self.length}
        return replace(CONVENTIONS[self.name], **{key: value for key, value in asked.items() if value is not None})


def job(trial: Trial) -> Job:
    """What `regard train` would be told: the recipe and what goes over it, or nothing but the files."""
    recipe = CONFIGS / f"{trial.convention.recipe}.toml" if trial.way != "auto" else None
    chosen = read_settings(recipe, list(trial.overrides) if recipe else [])
    if trial.ends:
        chosen["train"] = {key: value for key, value in chosen["train"].items() if key not in ENDS} | trial.ends
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
    """The figures of one trial, or what went wrong: the others' must not be lost to one failure. They are left beside
    the run, where the same trial finds them again."""
    if trial.threads:
        torch.set_num_threads(trial.threads)
    given = [] if trial.way == "auto" else list(trial.overrides)  # who is told nothing is not told these either
    named = {"set": trial.name, "way": trial.way, "seed": trial.seed, "overrides": given}
    left, same = trial.out / "result.json", repr(replace(trial, threads=None))
    if left.exists() and (known := json.loads(left.read_text()))["trial"] == same:
        return known["result"]
    start = time.perf_counter()
    try:
        trial.out.mkdir(parents=True, exist_ok=True)
        with open(trial.out / "log.txt", "w", encoding="utf-8") as log:
            card = run(job(trial), Plain(log))
        saved = checkpoint.read(trial.out / "checkpoints")
        trained = saved.facts["seconds"] if saved else 0.0  # of all its parts, if it went on
        asked = time.perf_counter()
        found = measured([trial.out / "bundle"], trial)
        measuring = time.perf_counter() - asked
        if trial.teach:
            teach(trial)
    except Exception as error:
        traceback.print_exc()
        return {**named, "error": f"{type(error).__name__}: {error}"}
    finally:  # the process goes on to other trials, and others share its GPU
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    facts = {key: card[key] for key in ("parameters", "steps", "of", "tokens", "seconds")}
    said = [decision.replace(f"{trial.parts}/", "") for decision in card["decisions"]]  # files, not machines
    model = bundle.load(trial.out / "bundle").settings.model_dump(mode="json")
    decided = {"decisions": said, "settings": {**card["settings"], "model": model}, "command": list(trial.command)}
    whole = round(max(time.perf_counter() - start, trained + measuring), 1)  # it may have begun in an earlier process
    result = {**named, **facts, "trained_seconds": round(trained, 1), "whole_seconds": whole, **found, **decided}
    left.write_text(json.dumps({"trial": same, "result": result}, ensure_ascii=False))
    return result


def outcomes(
    trials: Sequence[Trial], parallel: int, more: Callable[[Result], Sequence[Trial]] = lambda result: ()
) -> Iterator[Result]:
    """Each result as it comes, from so many processes side by side; and of `more` trials that follow from a result."""
    threads = max(1, (os.cpu_count() or 1) // parallel)
    with ProcessPoolExecutor(parallel, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        waiting = {pool.submit(attempt, replace(trial, threads=threads)) for trial in trials}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, return_when=FIRST_COMPLETED)
            for result in (one.result() for one in done):
                waiting |= {pool.submit(attempt, replace(trial, threads=threads)) for trial in more(result)}
                yield result


def end_with_parent() -> None:
    """End this process when the one that started it ends, killed or not: nobody would wait for its results."""
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def measured(folders: Sequence[Path], trial: Trial) -> Result:
    """The figures of a bundle, or of several together, on the dev part and, unless told otherwise, on the tests."""
    held = [bundle.load(folder, _device()) for folder in folders]
    first = held[0] if len(held) == 1 else replace(held[0], model=Ensemble([one.model for one in held]))
    figures: dict[str, float] = {}
    beside: Result = {}
    for part, questions in read_questions(trial.parts).items():
        if trial.dev_only and part != "dev":
            continue
        scores = trial.convention.score(answers(first, questions, trial.convention), questions)
        name = part.removeprefix("test ")
        for metric, value in scores.items():
            (figures if isinstance(value, float) else beside)[f"{name} {metric}"] = value
    return {"figures": figures, "beside": beside}


def teach(trial: Trial) -> None:
    """Leave beside the run what its model answers to the sources that it learned from."""
    sources = dict.fromkeys(source for source, _ in read_pairs(trial.parts / "train.tsv"))
    asked = [Question(source, []) for source in sources]
    found = answers(bundle.load(trial.out / "bundle", _device()), asked, trial.convention)
    pairs = [(source, said[0]) for source, said in zip(sources, found, strict=True) if said[0]]
    write_pairs(trial.out / "answers.tsv", pairs)


@torch.inference_mode()
def answers(held: Bundle, questions: Sequence[Question], convention: Convention) -> list[list[str]]:
    """What the search finds for each question, the best first, in large batches."""
    device = next(held.model.parameters()).device
    most = 2 * held.card["longest"]["target"] + 10
    # A sentence is hardly ever twice as long as its translation; actions are, by far, than their command.
    ratio = RATIO if convention.length else float(most)
    sources = [held.source.encode(question.source) for question in questions]
    reach = {"most": most, "ratio": ratio, "tokens": TOGETHER[device.type], "device": device}
    found = search_all(_search(convention), inference_model(held.model), sources, **reach)
    texts = ([held.target.decode(hypothesis.ids) for hypothesis in some.hypotheses] for some in found)
    return [list(dict.fromkeys(some)) or [""] for some in texts]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _search(convention: Convention) -> Search:
    if convention.beam == 1 and convention.best == 1:
        return Greedy()
    return Beam(max(convention.beam, convention.best), convention.best, LengthPenalty(convention.length))
