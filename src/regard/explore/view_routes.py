"""Routes of single views: segmentation, the logits of one step, position encodings."""

from __future__ import annotations

from typing import Literal

from fastapi import FastAPI, Response

from regard.explore.trace_store import TraceStore
from regard.web.json_messages import invalid, to_json

Side = Literal["source", "target"]


def add_view_routes(app: FastAPI, traces: TraceStore) -> None:
    """Add the routes to the explorer's application."""

    @app.get("/api/trace/{id}/tokenization")
    def tokenization(id: str, side: Side) -> Response:
        from regard.explore.tokenization_view import tokenization

        return _json(tokenization(traces[id], side))

    @app.get("/api/trace/{id}/positions")
    def positions(id: str, side: Side) -> Response:
        from regard.explore.position_view import position_encodings

        return _json(position_encodings(traces[id], side))

    @app.get("/api/trace/{id}/logits")
    def logits(id: str, row: int) -> Response:
        """What the softmax of one step reads, as float32, whatever the size of the vocabulary."""
        stored = traces[id]
        tensor = stored.tensor("out.tempered" if "out.tempered" in stored.trace else "out.logits")
        if not 0 <= row < len(tensor):
            raise invalid(f"row {row} is not one of 0 to {len(tensor) - 1}", "out-of-range")
        content = tensor[row].float().contiguous().numpy().astype("<f4").tobytes()
        return Response(content, media_type="application/octet-stream")


def _json(content: object) -> Response:
    return Response(to_json(content), media_type="application/json")
