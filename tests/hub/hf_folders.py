"""Tiny Hugging Face folders for tests of imports, written once and copied."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers

from tests.hub.hf_models import random_hf_model
from tests.hub.hf_tokenizers import write_tokenizer


@cache
def _stored(name: str, size: int) -> tuple[Path, Any]:
    folder = Path(mkdtemp(prefix="regard-hf-"))
    model = random_hf_model(name, size)
    with torch.random.fork_rng():
        save_quietly(model, folder)
        config = model.config.to_dict()
        sizes = [config.get(key) or 0 for key in ("src_vocab_size", "tgt_vocab_size", "vocab_size")]
        write_tokenizer(folder, max(*sizes, config.get("decoder_vocab_size") or 0), config)
    return folder, model


def hf_folder(place: Path, name: str = "marian", size: int = 1) -> tuple[Path, Any]:
    """A copy of a folder at `place`, and its model in `transformers`."""
    stored, model = _stored(name, size)
    shutil.copytree(stored, place)
    return place, model


def save_quietly(model: Any, folder: Path, **options: Any) -> None:
    """Save without a progress bar."""
    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
