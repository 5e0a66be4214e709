"""`regard bench`: the cases cover the dispatch table, and the report agrees with the results."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from regard.attention import BACKENDS, causal, everything
from regard.attention.backends.dispatch_table import DISPATCH, LENGTHS, LONG, SHORT
from regard.commands import bench
from regard.commands import bench_cases as cases
from regard.commands.bench_cases import ROWS, BenchCase, BenchResult, measure, time_on_cpu
from tests.commands.small import regard

TIMES = {"reference": 0.004, "sdpa": 0.003, "flex": 0.002, "triton": 0.001}
CASE = BenchCase("plain", "short", "uneven", [2, 3], heads=1, dim=4, mask=everything)


def found(auto: str = "sdpa", **seconds: float) -> BenchResult:
    return BenchResult(CASE, back=False, auto=auto, seconds=seconds)


def stub(device: str) -> Callable[[Callable[[], object]], float]:
    """A clock that runs its call and returns a fixed time for each backend in turn."""
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
def test_cases_cover_the_dispatch_table(device: str):
    grid = list(cases.cases(device))
    cells = {(device, ROWS[case.score], case.rows, case.length) for case in grid}
    assert cells == {(*row, length) for row in DISPATCH if row[0] == device for length in LENGTHS}
    for case in grid:
        longest = max(case.lengths)
        assert case.length == (
            "short" if longest <= SHORT else "long" if longest >= LONG else "middle"
        )
        assert (len(set(case.lengths)) == 1) == (case.rows == "even")


def test_supported_backends_are_timed_others_give_reasons():
    one = measure(CASE, "cpu", torch.float32, back=False, clock=stub("cpu"))
    assert one.seconds == {"reference": 0.004, "sdpa": 0.003, "flex": 0.002}
    assert one.cannot == {"triton": "it runs on a CUDA device only, and these tensors are on cpu"}
    assert (one.auto, one.fastest) == ("sdpa", "flex")
    assert one.slower == pytest.approx(1.5)
    back = measure(CASE, "cpu", torch.float32, back=True, clock=stub("cpu"))
    assert back.cannot["flex"] == "on a CPU it computes no gradients (run it under torch.no_grad())"
    assert set(back.seconds) == {"reference", "sdpa"}


@pytest.mark.parametrize("score", ROWS)
def test_backward_reaches_every_parameter(score: str):
    """The timed step has gradients of queries, keys, values and the parameters of the part."""
    given = []
    case = BenchCase(score, "short", "uneven", [2, 3], heads=2, dim=4, mask=causal)
    measure(case, "cpu", torch.float32, back=True, clock=lambda run: given.append(run()) or 1.0)
    assert {len(gradients) for gradients in given} == {3 + (score != "plain")}
    assert all(gradient.abs().max() > 0 for gradients in given for gradient in gradients)


def test_marks_of_the_fastest_and_of_auto():
    one = found(reference=0.1234, sdpa=0.0021, flex=0.0002)
    assert [bench.format_cell(one, name) for name in BACKENDS] == [
        "123  ",
        "2.10 ←",
        "[green]0.200* [/]",
        "–  ",
    ]
    assert bench.format_cell(found(sdpa=0.0021, reference=0.003), "sdpa") == "[green]2.10*←[/]"


def test_summary_names_cases_that_are_10_percent_slower():
    good, bad = found(sdpa=0.00109, reference=0.001), found(sdpa=0.00111, reference=0.001)
    assert list(bench.summary([good])) == ["auto is within 10% of the fastest in 1 of 1 cases"]
    first, whole, way_out = bench.summary([good, bad])
    assert first == "plain, 2 × 2–3, forward: auto selects sdpa, 1.11 × the time of reference"
    assert whole.endswith("in 1 of 2 cases")
    assert "model.attention_backend=NAME" in way_out


def test_auto_choice_that_fails_is_reported():
    one = found(reference=0.1)
    assert one.slower == float("inf")
    assert bench.format_cell(one, "sdpa") == "– ←"
    assert bench.result_fields(one)["slower"] is None  # JSON knows no infinity
    assert (
        next(bench.summary([one]))
        == "plain, 2 × 2–3, forward: auto selects sdpa, inf × the time of reference"
    )


@pytest.mark.parametrize(("rate", "printed"), [(1e3, True), (1e15, False)])
def test_values_above_the_ceiling_are_explained(
    rate, printed, monkeypatch, capsys: pytest.CaptureFixture[str]
):
    machine = bench.Machine("a card", "float32", "everything", products=rate, copies=rate)
    monkeypatch.setattr(bench, "measure_all", lambda *given: (machine, [found(sdpa=0.001)]))
    bench.bench(device="cpu")
    assert ("from cache" in capsys.readouterr().out) == printed


def test_least_time_by_hand():
    """13 pairs × 4 dims × 4 = 208 operations; four tensors of 5 × 4 numbers of 2 bytes: 160."""
    assert CASE.floor(back=False, products=208.0, copies=1e9, size=2) == pytest.approx(1.0)
    assert CASE.floor(back=False, products=1e9, copies=160.0, size=2) == pytest.approx(1.0)
    assert CASE.floor(back=True, products=208.0, copies=1e9, size=2) == pytest.approx(3.5)
    masked = BenchCase(
        "plain", "short", "uneven", [2, 3], heads=1, dim=4, mask=causal
    )  # 3 + 6 pairs
    assert masked.floor(back=False, products=144.0, copies=1e9, size=2) == pytest.approx(1.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small cases and a clock with fixed times."""
    monkeypatch.setattr(
        bench,
        "cases",
        lambda device, mask: iter(
            [replace(CASE, mask=mask), BenchCase("shaw", "short", "even", [3], 2, 4, mask)]
        ),
    )
    monkeypatch.setattr(bench, "timer", stub)
    monkeypatch.setattr(bench, "matmul_rate", lambda clock, device, dtype: 1e9)
    monkeypatch.setattr(bench, "copy_rate", lambda clock, device: 1e9)


@pytest.mark.usefixtures("small")
def test_json_fields(capsys: pytest.CaptureFixture[str]):
    out, _ = regard(capsys, "bench", "--device", "cpu", "--json")
    report = json.loads(out)
    assert (report["precision"], report["mask"], report["products"]) == (
        "float32",
        "everything",
        1e9,
    )
    assert [(one["score"], one["pass"]) for one in report["cases"]] == [
        (score, part) for part in bench.PASSES for score in ("plain", "shaw")
    ]
    first = report["cases"][0]
    assert first["milliseconds"]["sdpa"] == pytest.approx(3)
    assert (first["auto"], first["tokens"]) == ("sdpa", 5)
    assert first["of_ceiling"] == pytest.approx(
        320e-9 / 0.003
    )  # four tensors of 5 × 4 floats at 1 GB/s


@pytest.mark.usefixtures("small")
def test_tables(capsys: pytest.CaptureFixture[str]):
    out, _ = regard(capsys, "bench", "--device", "cpu", "--causal")
    assert "mask causal: matrix products at 0.001 TFLOP/s, copies at 1 GB/s" in out
    assert all(name in out for name in BACKENDS)
    rows = [line for line in out.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    assert all("←" in row and "*" in row for row in rows)
    assert "forward: auto selects sdpa, 1.50 × the time of flex" in out


def test_wrong_device_and_precision(capsys: pytest.CaptureFixture[str]):
    _, err = regard(capsys, "bench", "--device", "tpu", code=2)
    assert err == "regard: unknown device 'tpu'; did you mean 'cpu'?\n"
    _, err = regard(capsys, "bench", "--device", "cpu", "--precision", "int8", code=2)
    assert err.startswith("regard: unknown precision 'int8'; choose from 'bfloat16'")
    if not torch.cuda.is_available():
        _, err = regard(capsys, "bench", "--device", "cuda", code=2)
        assert (
            err == "regard: device 'cuda' is not available: torch finds no GPU; use --device cpu\n"
        )


def test_timer_takes_the_median_after_warm_up(monkeypatch: pytest.MonkeyPatch):
    """0.09 s is the warm-up; 0.01, 0.05, 0.02, 0.04 and 0.03 are enough, with median 0.03."""
    now, took = 0.0, iter([0.09, 0.01, 0.05, 0.02, 0.04, 0.03])

    def run() -> None:
        nonlocal now
        now += next(took)

    monkeypatch.setattr("regard.commands.bench_cases.time.perf_counter", lambda: now)
    assert time_on_cpu(run) == pytest.approx(0.03)
