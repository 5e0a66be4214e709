"""Commands about the installation: `regard doctor` and `regard completion`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import App, Parameter

from regard import cli_options as options

Shell = Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Shell: bash, zsh or fish.")]
Install = Annotated[
    bool, Parameter(help="Write the script to the folder that the shell reads at its start.")
]


def doctor(*, json: options.Json = False) -> None:
    """Check this installation: versions, CPU, GPU, engine, threads, memory; what to fix.

    The exit status is 1 if something has to be fixed. Torch is imported only if there may be a GPU.
    """
    from regard.commands.doctor import doctor as run

    if not run(as_json=json):
        sys.stdout.flush()
        sys.exit(1)


def add_commands(app: App) -> None:
    """Add both commands. `completion` describes all commands of the app."""

    def completion(shell: Shell, /, *, install: Install = False) -> None:
        """Print the completion script of a shell, or install it.

        With bash, `source <(regard completion bash)` tries it out.
        """
        if not install:
            print(app.generate_completion(shell=shell))
            return
        path = app.install_completion(shell=shell, add_to_startup=shell != "fish")
        print(f"{path}: start a new shell to use it")

    app.command(doctor, sort_key=20)
    app.command(completion, sort_key=22)
