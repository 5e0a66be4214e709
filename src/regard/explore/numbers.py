"""Numbers as JSON can hold them: what is not finite travels as the word "-inf", "inf" or "nan"."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(value: Any) -> str:
    """Nested values as JSON text, in ASCII: so half a surrogate pair, which no UTF-8 holds, travels too."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # rare, and to look at every number first would take longer
        return json.dumps(plain(value), separators=(",", ":"))


def plain(value: Any) -> Any:
    """The same values with words for the numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value
