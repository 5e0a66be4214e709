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

SIDES = ("members", "reversed_members")


class EnsembleSettings(SettingsGroup):
    """Ensemble of models, as `regard train --seeds` writes it; runs train its members one by one.

    No setting of a run: `model.kind` is a family.
    """

    kind: Literal["ensemble"] = "ensemble"
    """Marks an ensemble."""
    members: tuple[TransformerSettings | RecurrentSettings, ...]
    """Settings of each member that generates targets forward, from the first token on."""
    reversed_members: tuple[TransformerSettings | RecurrentSettings, ...] = ()
    """Settings of each member that generates targets reversed, from the last token on."""

    @property
    def count(self) -> int:
        """The number of all members."""
        return len(self.members) + len(self.reversed_members)


def parse_model(values: dict[str, Any]) -> Any:
    """The settings of a bundle's model: those of a family, or of an ensemble's members."""
    if values.get("kind") != "ensemble":
        return parse(ModelSettings, values, "model")
    sides = {name: values.get(name, []) for name in SIDES}
    for name, members in sides.items():
        if not isinstance(members, list) or not all(isinstance(one, dict) for one in members):
            raise RegardError(
                f"model.{name}: input should be a list of objects; got {members!r:.80}"
            )
    count = sum(map(len, sides.values()))
    if not 2 <= count <= MAX_MEMBERS:
        raise RegardError(f"an ensemble has 2 to {MAX_MEMBERS} members; got {count}")
    if not sides["members"]:
        raise RegardError("model.members of an ensemble is empty; it needs at least one")
    if unknown := values.keys() - {"kind", *SIDES}:
        raise RegardError(f"unknown setting model.{min(unknown)} of an ensemble")
    parsed = {
        name: tuple(parse(ModelSettings, one, f"model.{name}.{i}") for i, one in enumerate(some))
        for name, some in sides.items()
    }
    return EnsembleSettings(**parsed)


def plain_settings(settings: Any) -> dict[str, Any]:
    """The settings of a model by name; of an ensemble, those of its first member."""
    if not isinstance(settings, EnsembleSettings):
        return dict(settings.model_dump())
    first = settings.members[0].model_dump()
    return {**first, "kind": f"ensemble of {settings.count}, the first {first['kind']}"}
