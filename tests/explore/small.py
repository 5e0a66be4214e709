"""Small bundles on disk, and a client that asks as a browser on this machine does."""

from pathlib import Path

import torch
from starlette.testclient import TestClient

from regard import bundle
from regard.config import RecurrentSettings, TransformerSettings
from regard.explore.app import application
from regard.explore.guard import Guard
from regard.explore.models import Models
from regard.explore.server import OWN
from regard.models import build
from regard.text import train_tokenizer

WORDS = ["abandon", "zebra", "aba", "n", "nabob"]
SOURCE = WORDS[0]  # what most views are asked about
SETTINGS = {
    "transformer": TransformerSettings(
        width=16, heads=2, encoder_layers=1, decoder_layers=2, ffn_width=12, tie_embeddings="none"
    ),
    "recurrent": RecurrentSettings(width=10, attention="bahdanau", tie_embeddings="none"),
}
CARD = {
    "task": "symbols",
    "metrics": {"ser": 6.123, "wer": 25.0, "signature": "x"},
    "held_out": 1234,
    "longest": {"source": 8, "target": 3},
    "example": "zebra",
}
PORT = 7341


def saved(folder: Path, family: str = "transformer", settings=None) -> Path:
    """Random weights, made sharp enough that answers differ and end."""
    torch.manual_seed(3)
    source, target = train_tokenizer("characters", WORDS), train_tokenizer("words", ["AH B AE N", "Z IY"])
    settings = settings or SETTINGS[family]
    model = build(settings, len(source), len(target)).eval()
    with torch.no_grad():
        model.output.table.mul_(4)
    bundle.save(folder, bundle.Bundle(model, source, target, settings, CARD))
    return folder


def client(models: Models, traces=None, token: str | None = None, **options) -> TestClient:
    guarded = Guard(application(models, traces, **options), hosts=OWN, port=PORT, token=token)
    return TestClient(guarded, base_url=f"http://127.0.0.1:{PORT}", raise_server_exceptions=False)


def refused(answer, status: int, code: str) -> str:
    """The one line of an answer that must be a refusal of this kind."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert set(error) == {"code", "message"}
    assert error["code"] == code
    assert error["message"]
    assert "\n" not in error["message"]
    return error["message"]
