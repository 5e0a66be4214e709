"""Device: where a model computes."""

from __future__ import annotations

import torch

from regard.errors import RegardError


def placed(name: str | torch.device) -> torch.device:
    """The device of that name, or the best there is for "auto"; one line if it is not here."""
    name = str(name)
    here = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if here else "cpu"
    if name.startswith("cuda") and not here:
        raise RegardError("device 'cuda' is asked for, but torch sees no GPU; use --device cpu")
    try:
        place = torch.device(name)
        torch.empty(0, device=place, dtype=torch.uint8).numpy(force=True)  # what is not there answers nothing
    except (RuntimeError, NotImplementedError, AssertionError):
        raise RegardError(f"device {name!r} is not here; use cpu, or cuda where there is one") from None
    return place
