"""Writes docs/reference/cli.md: every command with its usage, arguments and options."""

from __future__ import annotations

import re

from regard.cli import app

HEAD = """# Command line

Generated from the commands themselves (`python docs/scripts/build.py --pages`); a test keeps it up
to date. `regard COMMAND --help` shows the same. Errors are one line on standard error, with exit
code 2.
"""


def page() -> str:
    """The whole page."""
    text = app.generate_docs(output_format="markdown", heading_level=1, usage_name="regard")
    text = text.replace(" -m pytest ", " ")  # cyclopts adds how Python was started
    text = text[text.index("\n**", text.index("## Table of Contents")) :]  # the groups of commands
    text = text.replace("```console", "```text")
    text = re.sub(r"^(\* .*) \*\[default: False\]\*$", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^## (.*)$", r"## \1", text, flags=re.MULTILINE)
    return f"{HEAD}\n{text.strip()}\n"
