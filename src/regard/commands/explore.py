"""Explore: the page of one or several bundles; what `regard explore` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.explore.models import Models
from regard.explore.server import serve


def explore(bundles: Sequence[Path], *, port: int | None, host: str, browser: bool) -> None:
    """Serve the page until Ctrl-C."""
    serve(Models.of(bundles), host=host, port=port, browser=browser)
