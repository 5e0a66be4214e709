"""The start of a decoder: the tokens that are given before the first generated one."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.text.template import Template


def start_tokens(
    model: Model, source: Ragged, template: Template
) -> tuple[Any, Int[Tensor, " source"]]:
    """The state after all start tokens but the last, and the last one for each source."""
    state: Any = model.start(model.encode(source))
    given = [
        torch.full((len(source),), token, device=source.values.device) for token in template.start
    ]
    for tokens in given[:-1]:
        _, state = model.step(tokens, state)
    return state, given[-1]
