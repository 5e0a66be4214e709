"""Options of the commands that train: data, model, length and folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard import cli_groups as groups

HeldOut = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.HELD_OUT,
        help="Files of held-out pairs (default: split from FILES by a fixed rule).",
        consume_multiple=True,
    ),
]
HeldOutTargets = Annotated[
    list[Path] | None,
    Parameter(
        group=groups.HELD_OUT,
        help="Files of targets, parallel to --held-out.",
        consume_multiple=True,
    ),
]
RunFolder = Annotated[
    Path | None,
    Parameter(group=groups.RUN, help="Folder of the run (default: runs/NAME of the first file)."),
]
StudentFolder = Annotated[
    Path | None, Parameter(group=groups.RUN, help="Folder of the run (default: runs/NAME-student).")
]
DemoFolder = Annotated[Path, Parameter(group=groups.RUN, help="Folder of the run.")]
OptionalFamily = Annotated[
    str | None,
    Parameter(group=groups.MODEL, help="Model family: transformer (default) or recurrent."),
]
Family = Annotated[
    str, Parameter(group=groups.MODEL, help="Model family: transformer or recurrent.")
]
Size = Annotated[
    str,
    Parameter(
        group=groups.MODEL, help="Model size: auto, tiny, mini, small, base, big or student."
    ),
]
StudentSize = Annotated[
    str | None,
    Parameter(
        group=groups.MODEL,
        help="Model size (default: student, with the widths and parts of the teacher).",
    ),
]
OriginalPairs = Annotated[
    bool,
    Parameter(
        group=groups.MODEL,
        help="Train on the original pairs, too, not only on the teacher's outputs.",
    ),
]
Minutes = Annotated[
    float | None,
    Parameter(group=groups.LENGTH, help="Training time in minutes; the schedule is fitted to it."),
]
Steps = Annotated[
    int | None, Parameter(group=groups.LENGTH, help="Number of updates to train for.")
]
Epochs = Annotated[
    float | None, Parameter(group=groups.LENGTH, help="Number of passes over the training data.")
]
DemoMinutes = Annotated[float, Parameter(group=groups.LENGTH, help="Training time in minutes.")]
Config = Annotated[
    Path | None,
    Parameter(group=groups.MODEL, help="TOML file with [model], [text] and [train] settings."),
]
Overrides = Annotated[
    list[str] | None,
    Parameter(
        group=groups.MODEL, name="--set", help="Any setting, such as model.width=128 (repeatable)."
    ),
]
Tensorboard = Annotated[
    bool, Parameter(group=groups.RUN, help="Also write TensorBoard event files.")
]
From = Annotated[
    Path | None,
    Parameter(
        group=groups.MODEL,
        name="--from",
        help="Fine-tune this bundle or hf:FOLDER: its weights, tokenizers and model settings.",
    ),
]
GivenTokenizer = Annotated[
    Path | None,
    Parameter(
        group=groups.MODEL, help="Train with this tokenizer.json (or its folder) on both sides."
    ),
]
Freeze = Annotated[
    list[str] | None,
    Parameter(group=groups.MODEL, help="Parameters to keep fixed, such as encoder.* (repeatable)."),
]
Seeds = Annotated[
    int | None,
    Parameter(
        group=groups.RUN,
        help="Train this many models; the bundle is their ensemble. Prints mean ± spread.",
    ),
]
DistillSeeds = Annotated[
    bool,
    Parameter(
        group=groups.RUN,
        name="--distill",
        help="With --seeds: the bundle is one model that learns from their ensemble.",
    ),
]
HelpSettings = Annotated[
    bool, Parameter(group=groups.MODEL, help="Show all settings with their defaults and exit.")
]
Extend = Annotated[
    bool,
    Parameter(
        group=groups.RUN,
        help="Continue a finished or interrupted run with more minutes, steps or epochs.",
    ),
]
RestartRun = Annotated[
    bool, Parameter(group=groups.RUN, help="Delete the earlier run in --out and start over.")
]
SweepFile = Annotated[Path, Parameter(help="TOML file: data, [fixed], [grid] or [random], seeds.")]
