"""Help pages: the groups of commands, and examples for each command."""

from __future__ import annotations

from cyclopts import App, Group

# Titles with their commands, in the order of `regard --help`.
COMMAND_GROUPS = {
    "Start here": ("demo", "train", "predict", "explore", "lesson", "serve"),
    "Data": ("data", "clean", "join"),
    "Quality": ("evaluate", "calibrate", "score", "inspect", "report", "compare"),
    "More training": ("sweep", "distill"),
    "Share and convert": ("pack", "quantize", "export", "import", "film"),
    "This machine": ("doctor", "bench", "completion"),
}

# For each command: what an example does, and its command line without `regard`.
EXAMPLES: dict[str, dict[str, str]] = {
    "demo": {
        "Train for three minutes, then show answers": "demo",
        "The recurrent model of Bahdanau et al., for one minute": "demo --family recurrent "
        "--minutes 1",
    },
    "train": {
        "Source and target in two columns": "train pairs.tsv",
        "Two columns of a spreadsheet, ten minutes": "train words.xlsx --source English "
        "--target German --minutes 10",
        "Parallel files, own held-out set": "train train.en --targets train.de --held-out dev.tsv",
        "Fine-tune a model": "train new.tsv --from runs/pairs --epochs 5",
        "Change settings": "train pairs.tsv --set model.width=128 --set model.dropout=0.2",
        "List all settings": "train --help-settings",
    },
    "predict": {
        "One text, with an included model": "predict spelling attention",
        "Each line of a file; run it again to resume": "predict runs/pairs --input in.txt "
        "--output out.txt",
        "A column of a table": "predict runs/pairs --input in.xlsx --column English "
        "--output out.xlsx",
        "The three best answers, with scores": "predict spelling either --n-best 3 --scores",
        "Five samples": "predict spelling either --sample --n-best 5 --temperature 0.8",
    },
    "explore": {
        "The included models": "explore",
        "Your own model, without opening a browser": "explore runs/pairs --no-browser",
    },
    "lesson": {
        "List the lessons": "lesson",
        "Open the first one": "lesson 1",
        "The appendix on greedy and beam search": "lesson A",
    },
    "serve": {
        "An included model, on this machine": "serve spelling",
        "Your own model on port 8000": "serve runs/pairs --port 8000",
    },
    "data": {
        "Report on a file of pairs": "data pairs.csv",
        "Compare with held-out pairs": "data train.tsv --held-out dev.tsv",
    },
    "clean": {
        "Drop bad lines and duplicates": "clean pairs.csv clean.tsv",
        "Drop what is also in the test set": "clean pairs.csv clean.tsv --exclude test.csv",
    },
    "join": {"Join the parts of a large output": "join answers.txt"},
    "evaluate": {
        "Metrics on a test set": "evaluate runs/pairs test.tsv",
        "Keep every prediction": "evaluate runs/pairs test.tsv --output predictions.tsv",
    },
    "calibrate": {
        "Confidence of an int8 copy": "calibrate runs/pairs/bundle-int8 dev.tsv",
        "Of an imported model, in a copy": "calibrate hf:opus-mt-en-de dev.tsv --out en-de",
    },
    "score": {
        "Log-probability of one pair": 'score spelling --pair attention "AH T EH N SH AH N"',
        "All pairs of a file": "score runs/pairs test.tsv",
    },
    "inspect": {
        "An included model": "inspect spelling",
        "As JSON": "inspect runs/pairs --json",
    },
    "report": {"Write runs/pairs/report.html": "report runs/pairs"},
    "compare": {"Two runs, with a significance test": "compare runs/small runs/big"},
    "sweep": {"All settings in a file": "sweep sweep.toml"},
    "distill": {
        "A small, fast student": "distill runs/teacher pairs.tsv",
        "Twenty minutes, on your own held-out pairs": "distill runs/teacher pairs.tsv "
        "--held-out dev.tsv --minutes 20",
    },
    "film": {"Two texts of your own": "film runs/pairs --probe attention --probe queue"},
    "pack": {"One file to share": "pack runs/pairs model.zip"},
    "quantize": {"A copy beside the original, with its loss of quality": "quantize runs/pairs"},
    "export": {
        "For ONNX Runtime, without Regard": "export runs/pairs --to onnx",
        "For CTranslate2, in int8": "export runs/pairs --to ctranslate2 --int8",
    },
    "import": {
        "A downloaded folder": "import opus-mt-en-de models/en-de",
        "Download it from the Hugging Face Hub": "import Helsinki-NLP/opus-mt-en-de "
        "models/en-de --download",
    },
    "doctor": {
        "What works here, and what to fix": "doctor",
        "For a bug report or a script": "doctor --json",
    },
    "bench": {
        "All backends on this machine": "bench",
        "On a GPU, in bfloat16": "bench --device cuda --precision bfloat16",
    },
    "completion": {
        "Install it for bash": "completion bash --install",
        "Print it for zsh": "completion zsh",
    },
}
EPILOGUE = "`regard COMMAND --help` shows the options of a command, with examples."


def format_examples(command: str) -> str:
    """The examples of a command as Markdown: each line with what it does above it."""
    lines = [f"# {text}\nregard {line}" for text, line in EXAMPLES.get(command, {}).items()]
    return "**Examples**\n\n```sh\n" + "\n".join(lines) + "\n```" if lines else ""


def describe_commands(app: App) -> None:
    """Put every command into its group and add its examples to its help page."""
    app.help_epilogue = EPILOGUE
    groups = {title: Group.create_ordered(title) for title in COMMAND_GROUPS}
    homes = {name: groups[title] for title, names in COMMAND_GROUPS.items() for name in names}
    general = Group.create_ordered("Options")
    for name in list(app):
        command = app[name]
        if name.startswith("-"):
            command.group = (general,)
            continue
        command.help_epilogue = format_examples(name)
        if name in homes:
            command.group = (homes[name],)
