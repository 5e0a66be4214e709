"""A model of 12 × 12 heads with a vocabulary of 50,000, opened as `regard explore hf:FOLDER`."""

import os
import statistics
from pathlib import Path

import torch
from exploring_browser import Site, click_times
from harness import Check
from interchange_models import write_folder
from transformers import MarianConfig, MarianMTModel

VOCABULARY = 50_000
SOURCE = " ".join(f"w{977 * k % 49_000 + 7}" for k in range(1, 20))
TARGET = " ".join(f"w{613 * k % 49_000 + 9}" for k in range(1, 20))
SLOWEST = 2.0  # seconds


def random_marian(folder: Path) -> None:
    """A Marian model with random weights: 12 layers of 12 heads on each side."""
    last = VOCABULARY - 1
    sizes = {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
    layers = dict.fromkeys(
        ("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"),
        12,
    )
    tokens = {"pad_token_id": last, "eos_token_id": 0, "decoder_start_token_id": last}
    config = MarianConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        forced_eos_token_id=0,
        **sizes,
        **layers,
        **tokens,
    )
    torch.manual_seed(0)
    write_folder(MarianMTModel(config).eval(), folder)


def measure_imported(folder: Path) -> list[Check]:
    """Open it, compare its logits with those of the library, and show its pages."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    random_marian(folder / "marian-12x12")
    checks = []
    with Site(f"hf:{folder / 'marian-12x12'}") as site:
        text = {"s": SOURCE, "t": TARGET}
        body = {"model": site.model, "source": SOURCE, "target": TARGET}
        delta = site.request("/api/trace", body)["check"]["library"]["max_delta"]
        checks.append(
            Check("12 × 12 heads: logits, max |Δ| to transformers", delta, None, 1e-3, delta < 1e-3)
        )
        count = len(site.request("/api/models")["models"]) and site.models[0]["parameters"]
        checks.append(Check("12 × 12 heads: parameters, millions", count / 1e6, None, None, True))
        for name, selector in (
            ("heads", "main canvas"),
            ("attention", "[data-heatmap]"),
            ("output", "main table, main [data-candidates], main .card"),
        ):
            took = statistics.median(site.drawn(name, selector, **text) for _ in range(3))
            label = f"12 × 12 heads, 50,000 tokens: page {name!r}, s"
            checks.append(Check(label, took, None, SLOWEST, took <= SLOWEST))
        page = site.open("attention", a="dec.11.cross", **text)
        page.locator("[data-heatmap]").first.wait_for()
        page.wait_for_load_state("networkidle")
        took, _ = click_times(page, closed=False)
        checks.append(Check("12 × 12 heads: click → arithmetic, ms", took, None, 50, took <= 50))
        page.context.close()
    return checks
