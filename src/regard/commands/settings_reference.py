"""`regard train --help-settings`: every setting with its default and description."""

from __future__ import annotations

from regard.config import (
    RecurrentSettings,
    SettingsGroup,
    TextSettings,
    TrainSettings,
    TransformerSettings,
)

GROUPS: dict[str, tuple[str, type[SettingsGroup]]] = {
    "Transformer": ("model", TransformerSettings),
    "Recurrent model": ("model", RecurrentSettings),
    "Text": ("text", TextSettings),
    "Training": ("train", TrainSettings),
}


def format_settings() -> str:
    """All settings as plain text, two lines each."""
    lines = ["Pass settings with --set NAME=VALUE, or in a TOML file with --config."]
    for title, (group, settings) in GROUPS.items():
        lines += ["", title]
        for name, field in settings.model_fields.items():
            if name == "kind":
                continue
            default = "" if field.default is None else f" = {field.default}"
            about = " ".join((field.description or "").split())
            lines += [f"  {group}.{name}{default}", f"      {about}"]
    return "\n".join(lines)
