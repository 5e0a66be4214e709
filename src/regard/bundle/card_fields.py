"""The types of a card's fields. Commands and pages read them without further checks.

Fields that are not listed here may hold any JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from regard.calibration import is_calibration
from regard.errors import RegardError

MAX_TEXT = 1 << 16  # characters
MAX_COUNT = 1 << 53
MAX_TOKENS = 1 << 24
MAX_RATIO = 1e4


class FieldType(NamedTuple):
    """What a field must be, in words, and the check."""

    words: str
    accepts: Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any, most: int = MAX_COUNT) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _table_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _anything(value: Any) -> bool:
    return True


def _longest(value: Any) -> bool:
    if not isinstance(value, dict) or not 0 < _ratio(value) <= MAX_RATIO:
        return False
    return all(_count(value[side], MAX_TOKENS) for side in ("source", "target") if side in value)


def _ratio(longest: dict[str, Any]) -> float:
    ratio = longest.get("ratio", 1)
    return float(ratio) if _number(ratio) else 0.0


def _interval(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_number, value))


def _quantity(value: Any) -> bool:
    return _number(value) and 0 <= value <= MAX_COUNT


def _input(value: Any) -> bool:
    return _table_of(_alphabet)(value)


def _alphabet(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and (value.get("alphabet") is None or _text(value["alphabet"]))
        and value.get("case") in ("lower", "upper", "any")
    )


TEXT = FieldType("a text", _text)
TEXTS = FieldType("a list of texts", _list_of(_text))
COUNT = FieldType("a count", _count)
TABLE = FieldType("an object", _table_of(_anything))
TABLES = FieldType("an object of objects", _table_of(_table_of(_anything)))
FIELDS: dict[str, FieldType] = {
    **dict.fromkeys(("task", "title", "name", "example", "machine", "attribution"), TEXT),
    "most_frequent_target": FieldType("a text", lambda value: value is None or _text(value)),
    "precision": FieldType("'float32' or 'int8'", lambda value: value in ("float32", "int8")),
    **dict.fromkeys(("parameters", "pairs", "held_out", "steps", "of", "tokens"), COUNT),
    "seconds": FieldType("a number of at least 0", _quantity),
    "longest": FieldType("the longest source and target, in tokens, and their ratio", _longest),
    "intervals": FieldType("an object of pairs of numbers", _table_of(_interval)),
    "baselines": FieldType("an object", lambda value: value is None or TABLE.accepts(value)),
    "samples": FieldType("a list of lists of texts", _list_of(_list_of(_text))),
    "examples": TEXTS,
    "input": FieldType("the alphabet and the case of source and target", _input),
    "quality": FieldType("a list of objects", _list_of(TABLE.accepts)),
    **dict.fromkeys(("decisions", "command"), TEXTS),
    **dict.fromkeys(("metrics", "data", "versions"), TABLE),
    "settings": TABLES,
    "calibration": FieldType("an object, with weights that are numbers", is_calibration),
    **dict.fromkeys(
        ("import", "ensemble", "distillation", "quantization", "tested", "export"), TABLE
    ),
}


def check_card(card: dict[str, Any]) -> None:
    """Raise if a field has another type than commands expect."""
    for name, value in card.items():
        kind = FIELDS.get(name)
        if kind is not None and not kind.accepts(value):
            raise RegardError(f"its {name!r} must be {kind.words}; got {value!r:.80}")
