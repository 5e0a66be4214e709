"""Students: the recipe again, on the data and on its models' outputs for the training sources.
 The outputs of three models differ from the reference in ways that are also correct. A student
that learns from all of them approaches the ensemble in one model (sequence-level distillation, Kim
& Rush 2016; data diversification, Nguyen et al. 2020). Only the training part is used.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from quality_runs import Result, Trial
from quality_sets import Pairs, read_pairs, write_pairs

from regard.training.teacher_outputs import distinct_pairs

METHOD = "distilled"


def students(teachers: Sequence[Trial], results: Sequence[Result]) -> list[Trial]:
    """One student per teacher, with its seed and number of steps; none if a teacher failed."""
    steps = {one["seed"]: one["planned_steps"] for one in results if "error" not in one}
    if not teachers or any(trial.seed not in steps for trial in teachers):
        return []
    home = teachers[0].out.parent
    labels = [trial.out / "outputs.tsv" for trial in teachers]
    parts = write_distilled_parts(teachers[0].parts, labels, home / f"{METHOD}-parts")
    return [
        replace(
            one,
            out=home / f"{METHOD}-{one.seed}",
            method=METHOD,
            parts=parts,
            label_sources=False,
            run_length={"steps": steps[one.seed]},
        )
        for one in teachers
    ]


def write_distilled_parts(parts: Path, labels: Sequence[Path], folder: Path) -> Path:
    """Copy the parts to a folder, with every distinct output added to the training pairs."""
    pairs: Pairs = list(distinct_pairs(*map(read_pairs, (parts / "train.tsv", *labels))))
    folder.mkdir(exist_ok=True)
    write_pairs(folder / "train.tsv", pairs)
    for name in ("dev.tsv", "examples.json"):
        shutil.copyfile(parts / name, folder / name)
    return folder
