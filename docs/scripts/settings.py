"""Writes docs/settings.md: every setting with its type, default and description.

python docs/scripts/build.py --pages
"""

from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from regard.config import RecurrentSettings, SettingsGroup, TextSettings, TrainSettings
from regard.config import TransformerSettings as Transformer

PAGE = Path(__file__).parents[1] / "settings.md"
GROUPS: dict[str, tuple[str, type[SettingsGroup]]] = {
    "Transformer": ("model", Transformer),
    "Recurrent model": ("model", RecurrentSettings),
    "Text": ("text", TextSettings),
    "Training": ("train", TrainSettings),
}
HEAD = """# Settings

Pass a setting on the command line, `regard train pairs.tsv --set model.width=128`, or in a TOML
file, `regard train pairs.tsv --config settings.toml`. None has to be set. A dash in the column
"default" means that there is no fixed value; the description says what happens then.

`python docs/scripts/build.py --pages` generates this page from `src/regard/config.py`, and a test
keeps it up to date.
"""


def allowed(kind: Any) -> str:
    """The values that a setting accepts: choices by name, otherwise the type."""
    origin = get_origin(kind)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if origin in (Union, UnionType):
        return " or ".join(allowed(each) for each in get_args(kind) if each is not type(None))
    if origin is not None:
        kind = origin
    names = {
        "bool": "true or false",
        "str": "text",
        "float": "number",
        "int": "integer",
        "dict": "table",
    }
    return names.get(kind.__name__, kind.__name__)


def row(group: str, name: str, field: FieldInfo) -> str:
    """One line of a table."""
    default = "–" if field.default is None else f"`{field.default}`"
    if isinstance(field.default, bool):
        default = default.lower()
    about = " ".join((field.description or "").split())
    cells = [f"`{group}.{name}`", allowed(field.annotation), default, about]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(title: str, group: str, settings: type[SettingsGroup]) -> str:
    """All settings of a group."""
    about = " ".join((settings.__doc__ or "").split())
    fields = settings.model_fields.items()
    rows = [row(group, name, field) for name, field in fields if name != "kind"]
    header = "| setting | values | default | description |\n|---|---|---|---|"
    return "\n".join([f"## {title}\n", about + "\n", header, *rows])


def page() -> str:
    """The whole page."""
    tables = [table(title, *group) for title, group in GROUPS.items()]
    return "\n\n".join([HEAD.strip(), *tables]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
