"""Small bundles on disk, and a client that sends requests like a local browser."""

from pathlib import Path

import torch
from starlette.testclient import TestClient

from regard import bundle
from regard.config import RecurrentSettings, TransformerSettings
from regard.explore.app import create_app
from regard.explore.model_store import ModelStore
from regard.explore.server import Guard
from regard.models import build
from regard.text import train_tokenizer
from regard.web.access import LOCAL_NAMES

WORDS = ["abandon", "zebra", "aba", "n", "nabob"]
SOURCE = WORDS[0]  # the text of most tests
SETTINGS = {
    "transformer": TransformerSettings(
        width=16, heads=2, encoder_layers=1, decoder_layers=2, ffn_width=12, tie_embeddings="none"
    ),
    "recurrent": RecurrentSettings(width=10, attention="bahdanau", tie_embeddings="none"),
}
CARD = {
    "task": "symbols",
    "metrics": {"symbol_error_rate": 6.123, "sequence_error_rate": 25.0, "signature": "x"},
    "held_out": 1234,
    "longest": {"source": 8, "target": 3},
    "example": "zebra",
}
PORT = 7341


def save_bundle(folder: Path, family: str = "transformer", settings=None, card=None) -> Path:
    """Save random weights, scaled so that outputs differ and end."""
    torch.manual_seed(3)
    source = train_tokenizer("characters", WORDS)
    target = train_tokenizer("words", ["AH B AE N", "Z IY"])
    settings = settings or SETTINGS[family]
    model = build(settings, len(source), len(target)).eval()
    with torch.no_grad():
        model.output.table.mul_(4)
    bundle.save(
        folder, bundle.Bundle(model, source, target, settings, CARD if card is None else card)
    )
    return folder


BPE_LINES = [
    "the newest tower is lower than the widest river",
    "newer towers and slower rivers",
] * 3
BPE_SOURCE = "the newest tower is slow"


def save_bpe_bundle(folder: Path) -> Path:
    """A model with random weights whose tokens come from merges."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer("bpe", BPE_LINES, size=320)
    settings = SETTINGS["transformer"]
    model = build(settings, len(tokenizer), len(tokenizer)).eval()
    card = {**CARD, "task": "text", "example": BPE_SOURCE}
    bundle.save(folder, bundle.Bundle(model, tokenizer, tokenizer, settings, card))
    return folder


def save_large_bundle(folder: Path, size: int = 2_500) -> Path:
    """A model with random weights and more target tokens than the page loads at once."""
    torch.manual_seed(5)
    source = train_tokenizer("characters", WORDS)
    target = train_tokenizer("words", [" ".join(f"w{k}" for k in range(size))])
    settings = SETTINGS["transformer"]
    model = build(settings, len(source), len(target)).eval()
    with torch.no_grad():
        model.output.table.mul_(8)
    bundle.save(folder, bundle.Bundle(model, source, target, settings, CARD))
    return folder


def make_client(models: ModelStore, traces=None, token: str | None = None, **options) -> TestClient:
    """A client of the guarded application."""
    guarded = Guard(
        create_app(models, traces, **options), hosts=LOCAL_NAMES, port=PORT, token=token
    )
    return TestClient(guarded, base_url=f"http://127.0.0.1:{PORT}", raise_server_exceptions=False)


def error_message(response, status: int, code: str) -> str:
    """The message of a response that must be an error with this status and code."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["code"] == code
    message = body["error"]["message"]
    assert message
    assert "\n" not in message
    return message
