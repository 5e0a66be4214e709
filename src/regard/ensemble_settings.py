"""Settings of an ensemble in a bundle, and of any bundle's model."""

from __future__ import annotations

from typing import Any, Literal

from regard.config import (
    ModelSettings,
    RecurrentSettings,
    SettingsGroup,
    TransformerSettings,
    parse,
)
from regard.errors import RegardError
from regard.model_limits import MAX_MEMBERS


class EnsembleSettings(SettingsGroup):
    """Ensemble of models, as `regard train --seeds` writes it; runs train its members one by one.

    No setting of a run: `model.kind` is a family.
    """

    kind: Literal["ensemble"] = "ensemble"
    """Marks an ensemble."""
    members: tuple[TransformerSettings | RecurrentSettings, ...]
    """Settings of each member."""


def parse_model(values: dict[str, Any]) -> Any:
    """The settings of a bundle's model: those of a family, or of an ensemble's members."""
    if values.get("kind") != "ensemble":
        return parse(ModelSettings, values, "model")
    members = values.get("members")
    if not isinstance(members, list) or not all(isinstance(one, dict) for one in members):
        raise RegardError(f"model.members: input should be a list of objects; got {members!r:.80}")
    if not 2 <= len(members) <= MAX_MEMBERS:
        raise RegardError(f"an ensemble has 2 to {MAX_MEMBERS} members; got {len(members)}")
    if unknown := values.keys() - {"kind", "members"}:
        raise RegardError(f"unknown setting model.{min(unknown)} of an ensemble")
    each = (parse(ModelSettings, one, f"model.members.{i}") for i, one in enumerate(members))
    return EnsembleSettings(members=tuple(each))


def plain_settings(settings: Any) -> dict[str, Any]:
    """The settings of a model by name; of an ensemble, those of its first member."""
    if not isinstance(settings, EnsembleSettings):
        return dict(settings.model_dump())
    first = settings.members[0].model_dump()
    return {**first, "kind": f"ensemble of {len(settings.members)}, the first {first['kind']}"}
