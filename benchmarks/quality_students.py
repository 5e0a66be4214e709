"""Students: the recipe again, on the data and on what its own models answered to the training sources.

Three models' answers to a source differ from its one reference in ways that are also right; who learns from all of them
comes near to the three together, in one model (sequence-level distillation, Kim & Rush 2016; data diversification,
Nguyen et al. 2020). Nothing but the training part is used.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from quality_runs import Result, Trial
from quality_sets import Pairs, read_pairs, write_pairs

WAY = "distilled"


def students(teachers: Sequence[Trial], results: Sequence[Result]) -> list[Trial]:
    """A student for each teacher's seed, for as many steps; none where a teacher failed."""
    of = {result["seed"]: result["of"] for result in results if "error" not in result}
    if not teachers or any(trial.seed not in of for trial in teachers):
        return []
    home = teachers[0].out.parent
    parts = taught(teachers[0].parts, [trial.out / "answers.tsv" for trial in teachers], home / f"{WAY}-parts")
    told = {"way": WAY, "parts": parts, "teach": False}
    return [
        replace(one, out=home / f"{WAY}-{one.seed}", ends={"steps": of[one.seed]}, **told)  # type: ignore[arg-type]
        for one in teachers
    ]


def taught(parts: Path, answers: Sequence[Path], folder: Path) -> Path:
    """The parts with every different answer among the pairs to learn from."""
    pairs: Pairs = [pair for path in (parts / "train.tsv", *answers) for pair in read_pairs(path)]
    folder.mkdir(exist_ok=True)
    write_pairs(folder / "train.tsv", list(dict.fromkeys(pairs)))
    for name in ("dev.tsv", "questions.json"):
        shutil.copyfile(parts / name, folder / name)
    return folder
