"""bench: the grid is the table, marks stand where they belong, and what is said is what was found."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from regard.attention import BACKENDS, causal, everything
from regard.attention.backends.dispatch_table import LENGTHS, LONG, MEASURED, SHORT
from regard.commands import bench
from regard.commands import bench_cases as cases
from regard.commands.bench_cases import ROWS, Case, Finding, measure
from regard.commands.timing import on_cpu
from tests.commands.small import regard

TIMES = {"reference": 0.004, "sdpa": 0.003, "flex": 0.002, "triton": 0.001}
CASE = Case("plain", "short", "uneven", [2, 3], heads=1, dim=4, mask=everything)


def found(auto: str = "sdpa", **seconds: float) -> Finding:
    return Finding(CASE, back=False, auto=auto, seconds=seconds)


def stub(device: str) -> Callable[[Callable[[], object]], float]:
    """A clock that runs what it is given and says a time of its own: in turn those of the backends that can."""
    names = iter(())

    def clock(run: Callable[[], object]) -> float:
        nonlocal names
        run()
        try:
            return TIMES[next(names)]
        except StopIteration:
            names = iter(list(BACKENDS)[1:])
            return TIMES["reference"]

    return clock


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_grid_has_a_case_for_every_cell_of_the_table(device: str):
    grid = list(cases.cases(device))
    cells = {(device, ROWS[case.score], case.rows, case.length) for case in grid}
    assert cells == {(*row, length) for row in MEASURED if row[0] == device for length in LENGTHS}
    for case in grid:
        longest = max(case.lengths)
        assert case.length == ("short" if longest <= SHORT else "long" if longest >= LONG else "middle")
        assert (len(set(case.lengths)) == 1) == (case.rows == "even")


def test_every_backend_that_can_is_timed_and_the_others_say_why():
    one = measure(CASE, "cpu", torch.float32, back=False, clock=stub("cpu"))
    assert one.seconds == {"reference": 0.004, "sdpa": 0.003, "flex": 0.002}
    assert one.cannot == {"triton": "it runs on a CUDA device only, and these tensors are on cpu"}
    assert (one.auto, one.fastest) == ("sdpa", "flex")
    assert one.slower == pytest.approx(1.5)
    back = measure(CASE, "cpu", torch.float32, back=True, clock=stub("cpu"))
    assert back.cannot["flex"] == "on a CPU it gives no gradients (run it under torch.no_grad())"
    assert set(back.seconds) == {"reference", "sdpa"}


@pytest.mark.parametrize("score", ROWS)
def test_backward_reaches_what_is_learned(score: str):
    """The step that is timed gives a gradient for queries, keys, values, and what the score or the bias learns."""
    given = []
    case = Case(score, "short", "uneven", [2, 3], heads=2, dim=4, mask=causal)
    measure(case, "cpu", torch.float32, back=True, clock=lambda run: given.append(run()) or 1.0)
    assert {len(gradients) for gradients in given} == {3 + (score != "plain")}
    assert all(gradient.abs().max() > 0 for gradients in given for gradient in gradients)


def test_marks_stand_at_the_fastest_and_at_what_auto_takes():
    one = found(reference=0.1234, sdpa=0.0021, flex=0.0002)
    assert [bench.cell(one, name) for name in BACKENDS] == ["123  ", "2.10 ←", "[green]0.200* [/]", "–  "]
    assert bench.cell(found(sdpa=0.0021, reference=0.003), "sdpa") == "[green]2.10*←[/]"


def test_the_verdict_names_what_is_a_tenth_slower():
    good, bad = found(sdpa=0.00109, reference=0.001), found(sdpa=0.00111, reference=0.001)
    assert list(bench.verdict([good])) == ["auto takes the fastest, or is within 10% of it, in 1 of 1 cases"]
    first, whole, way_out = bench.verdict([good, bad])
    assert first == "plain, 2 × 2–3, forward: auto takes sdpa, 1.11 × the time of reference"
    assert whole.endswith("in 1 of 2 cases")
    assert "model.attention_backend=NAME" in way_out


def test_what_auto_takes_and_cannot_finish_is_told():
    one = found(reference=0.1)
    assert one.slower == float("inf")
    assert bench.cell(one, "sdpa") == "– ←"
    assert bench.record(one)["slower"] is None  # JSON knows no infinity
    assert next(bench.verdict([one])) == "plain, 2 × 2–3, forward: auto takes sdpa, inf × the time of reference"


@pytest.mark.parametrize(("rate", "said"), [(1e3, True), (1e15, False)])
def test_more_than_the_ceiling_is_explained(rate, said, monkeypatch, capsys: pytest.CaptureFixture[str]):
    machine = bench.Machine("a card", "float32", "everything", products=rate, copies=rate)
    monkeypatch.setattr(bench, "measured", lambda *given: (machine, [found(sdpa=0.001)]))
    bench.bench(device="cpu")
    assert ("from the cache" in capsys.readouterr().out) == said


def test_the_floor_by_hand():
    """13 pairs of 4 dims: 4 · 13 · 4 = 208 operations forward; four tensors of 5 × 4 numbers of 2 bytes are 160."""
    assert CASE.floor(back=False, products=208.0, copies=1e9, size=2) == pytest.approx(1.0)
    assert CASE.floor(back=False, products=1e9, copies=160.0, size=2) == pytest.approx(1.0)
    assert CASE.floor(back=True, products=208.0, copies=1e9, size=2) == pytest.approx(3.5)
    masked = Case("plain", "short", "uneven", [2, 3], heads=1, dim=4, mask=causal)  # 3 + 6 pairs
    assert masked.floor(back=False, products=144.0, copies=1e9, size=2) == pytest.approx(1.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command on two small cases, with a clock that does not look at the time."""
    monkeypatch.setattr(
        bench,
        "cases",
        lambda device, mask: iter([replace(CASE, mask=mask), Case("shaw", "short", "even", [3], 2, 4, mask)]),
    )
    monkeypatch.setattr(bench, "timer", stub)
    monkeypatch.setattr(bench, "matmul_rate", lambda clock, device, dtype: 1e9)
    monkeypatch.setattr(bench, "copy_rate", lambda clock, device: 1e9)


@pytest.mark.usefixtures("small")
def test_json_is_whole(capsys: pytest.CaptureFixture[str]):
    out, _ = regard(capsys, "bench", "--device", "cpu", "--json")
    said = json.loads(out)
    assert (said["precision"], said["mask"], said["products"]) == ("float32", "everything", 1e9)
    assert [(one["score"], one["pass"]) for one in said["cases"]] == [
        (score, part) for part in bench.PASSES for score in ("plain", "shaw")
    ]
    first = said["cases"][0]
    assert first["milliseconds"]["sdpa"] == pytest.approx(3)
    assert (first["auto"], first["tokens"]) == ("sdpa", 5)
    assert first["of_ceiling"] == pytest.approx(320e-9 / 0.003)  # four tensors of 5 × 4 floats at 1 GB/s


@pytest.mark.usefixtures("small")
def test_tables_for_people(capsys: pytest.CaptureFixture[str]):
    out, _ = regard(capsys, "bench", "--device", "cpu", "--causal")
    assert "mask causal: matrix products run at 0.001 TF/s, copies at 1 GB/s" in out
    assert all(name in out for name in BACKENDS)
    rows = [line for line in out.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    assert all("←" in row and "*" in row for row in rows)
    assert "forward: auto takes sdpa, 1.50 × the time of flex" in out


def test_wrong_devices_and_precisions_are_one_line(capsys: pytest.CaptureFixture[str]):
    _, said = regard(capsys, "bench", "--device", "tpu", code=2)
    assert said == "regard: unknown device 'tpu'; did you mean 'cpu'?\n"
    _, said = regard(capsys, "bench", "--device", "cpu", "--precision", "int8", code=2)
    assert said.startswith("regard: unknown precision 'int8'; choose from 'bfloat16'")
    if not torch.cuda.is_available():
        _, said = regard(capsys, "bench", "--device", "cuda", code=2)
        assert said == "regard: device 'cuda' is not available: torch finds no GPU; use --device cpu\n"


def test_the_clock_takes_the_middle_and_not_the_first(monkeypatch: pytest.MonkeyPatch):
    """Nine hundredths of a second warm up; 1, 5, 2, 4 and 3 are enough, and 3 is their middle."""
    now, took = 0.0, iter([0.09, 0.01, 0.05, 0.02, 0.04, 0.03])

    def run() -> None:
        nonlocal now
        now += next(took)

    monkeypatch.setattr("regard.commands.timing.time.perf_counter", lambda: now)
    assert on_cpu(run) == pytest.approx(0.03)
