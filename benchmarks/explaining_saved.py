"""Numbers of tensors as a saved page explains them: its script runs in Chromium.

A saved page has no Python: it recomputes each number from the program and the weights in the file.
`ask` opens the data of a saved page and returns the explanations at some addresses.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from explaining_check import largest, near, real
from explaining_formulas import Recomputed

from regard.bundle import save
from regard.explore import STATIC
from regard.explore.export import tensor_file
from regard.explore.model_store import ServedModel
from regard.explore.offline_arithmetic import offline_arithmetic
from regard.explore.offline_html import stored_trace
from regard.explore.trace_json import describe
from regard.trace import Trace
from regard.web.json_messages import to_json

Address = tuple[str, tuple[int, ...]]
Ask = Callable[..., list[dict[str, Any]]]  # (trace, addresses, folder of its bundle)
SAME = 1e-11  # float64 here and there: the functions of the C library differ in the last bits

PAGE = """async ([text, addresses]) => {
  const { trace, tensors, arithmetic } = JSON.parse(text);
  const raw = Uint8Array.from(atob(tensors), one => one.charCodeAt(0)).buffer;
  const length = Number(new DataView(raw).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 8, length)));
  const read = new Map(Object.entries(header).map(([name, { shape, data_offsets }]) => {
    const [from, to] = data_offsets.map(at => 8 + length + at);
    return [name, { name, shape, data: new Float32Array(raw.slice(from, to)) }];
  }));
  const opened = await window.regardArithmetic.open(trace, arithmetic, read);
  return JSON.stringify(addresses.map(([name, index]) => opened.explain(name, index)));
}"""


def saved_functions(browser: Any) -> Ask:
    """`ask`, on a page that has the script of saved pages."""
    page = browser.new_page()
    page.set_content("<!doctype html>")
    page.add_script_tag(path=STATIC / "arithmetic.js")

    def ask(
        trace: Trace, addresses: Sequence[Address], home: Path | None = None
    ) -> list[dict[str, Any]]:
        with TemporaryDirectory() as folder:
            if home is None:
                home = Path(folder) / "model"
                save(home, trace.pipeline.bundle)
            data = saved_data(trace, home)
        found: list[dict[str, Any]] = json.loads(page.evaluate(PAGE, [data, list(addresses)]))
        return found

    return ask


def saved_data(trace: Trace, home: Path) -> str:
    """What a saved page contains for its arithmetic, as JSON."""
    stored = stored_trace(trace, ServedModel(home))
    return to_json(
        {
            "trace": describe(stored),
            "tensors": base64.b64encode(tensor_file(stored, ())).decode(),
            "arithmetic": offline_arithmetic(stored),
        }
    )


def unlike(saved: dict[str, Any], live: dict[str, Any]) -> Iterator[str]:
    """Where the explanation of a saved page is not that of Regard."""
    live = json.loads(to_json(live))
    size = largest(live, Recomputed(0.0))
    for path, one, other in _leaves("", saved, live):
        if path.endswith(".difference"):
            continue  # of two nearly equal numbers; `wrong_numbers` recomputes it
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        same = near(real(one), real(other), SAME, size) if numbers else one == other
        if not same:
            yield f"saved page: {live['name']}{live['index']}{path} is {one!r}; Regard: {other!r}"


def _leaves(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Pairs of values at the same places; those of different shapes as they are."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _leaves(f"{path}.{key}", one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, both in enumerate(zip(one, other, strict=True)):
            yield from _leaves(f"{path}[{at}]", *both)
    else:
        yield path, one, other
