"""Write a model as a folder that `transformers` reads: Blenderbot, mBART, BART, Marian or T5.

The layout is chosen by the settings of the model. Writing needs no `transformers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from regard.bundle import Bundle
from regard.bundle.manifest import write_json
from regard.errors import RegardError
from regard.hub.bart_layout import BART_LAYOUTS
from regard.hub.checkpoint_layout import CheckpointLayout, special_token_ids
from regard.hub.hf_tokenizer import write_hf_tokenizers
from regard.hub.t5_layout import T5Layout
from regard.models.families import unknown_part

LAYOUTS: list[CheckpointLayout] = [*BART_LAYOUTS, T5Layout()]
DEFAULT_LIMIT = 256  # tokens of an output, where the card has none


def choose_layout(bundle: Bundle) -> CheckpointLayout:
    """The layout that represents a model; otherwise names what would have to be different."""
    if reason := unknown_part(bundle.model):
        kind = type(bundle.model).__name__
        if "family" in reason:
            reason = f"model.kind must be transformer, not {kind.lower()}"
        raise RegardError(f"no class of transformers fits this model: {reason}; use --to onnx")
    unmet = {layout.name: layout.unmet(bundle) for layout in LAYOUTS}
    for layout in LAYOUTS:
        if not unmet[layout.name]:
            return layout
    nearest = min(LAYOUTS, key=lambda layout: len(unmet[layout.name]))
    reasons = ", ".join(map(str, unmet[nearest.name]))
    raise RegardError(
        f"no class of transformers fits this model; for the nearest, {nearest.name}, {reasons}; "
        "train with these settings, or use --to onnx"
    )


def write_hf(bundle: Bundle, folder: Path) -> tuple[str, int | None]:
    """Write the folder; returns the name of the layout and the maximum tokens of a side."""
    layout = choose_layout(bundle)
    bundle.model.cpu().eval()
    found = layout.convert(bundle)
    tensors = {name: tensor.contiguous().clone() for name, tensor in found.tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", {**found.config, "dtype": "float32"})
    write_json(folder / "generation_config.json", generation_options(bundle))
    write_hf_tokenizers(bundle, folder, found.longest)
    return layout.name, found.longest


def generation_options(bundle: Bundle) -> dict[str, Any]:
    """Options of `generate` that give the outputs of Regard's beam search.

    Regard's limit of length also depends on the source, and at the limit it counts the
    log-probability of the end; `generate` can express neither.
    """
    longest, banned = bundle.card.get("longest", {}), list(bundle.template.banned)
    limit = 2 * longest["target"] + 10 if "target" in longest else DEFAULT_LIMIT
    return {
        **special_token_ids(bundle),
        "num_beams": 4,
        "early_stopping": "never",
        "length_penalty": float(bundle.card.get("task") == "text"),
        "max_new_tokens": limit + 1,
        **({"suppress_tokens": banned} if banned else {}),
    }
