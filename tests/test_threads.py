"""Thread counts: the tuner finds the fastest one on a simulated machine and follows its changes."""

import threading

import pytest
import torch

import regard
from regard import threads
from regard.threads import FixedThreads, ThreadTuner, automatic, search_threads, training_threads


class Machine:
    """A simulated machine: work advances its clock at the speed of the thread count in use."""

    def __init__(self, speeds: dict[int, float]) -> None:
        self.speeds, self.now = speeds, 0.0
        self.history = []  # (threads, amount of work, seconds)

    def work(self, amount: float) -> None:
        count = torch.get_num_threads()
        seconds = amount / self.speeds[count]
        self.history.append((count, amount, seconds))
        self.now += seconds

    def steps(self, count: int, amount: float) -> int:
        """How often this amount was done with this count."""
        return [known[:2] for known in self.history].count((count, amount))

    def tuner(self, **options) -> ThreadTuner:
        return ThreadTuner(sorted(self.speeds), clock=lambda: self.now, **options)


IDLE = {1: 18_000.0, 2: 26_000.0}
BUSY = {1: 17_800.0, 2: 2_258.0}
STEP = 2_048  # tokens


def train(machine: Machine, tuner: ThreadTuner, seconds: float) -> float:
    """Tokens per second of training for some simulated seconds; trials do no useful work."""
    start, done = machine.now, 0
    while machine.now < start + seconds:
        while tuner.trial is not None:
            work = STEP / 8 if tuner.trial.sample else STEP
            with tuner.probe(work):
                machine.work(work)
        with tuner.watch(STEP):
            machine.work(STEP)
        done += STEP
    return done / (machine.now - start)


def decode(machine: Machine, tuner: ThreadTuner, seconds: float, rows: int = 200) -> float:
    """Rows per second of search for some simulated seconds."""
    start, done = machine.now, 0
    while machine.now < start + seconds:
        with tuner.measure(rows):
            machine.work(rows)
        done += rows
    return done / (machine.now - start)


@pytest.mark.parametrize(("speeds", "best"), [(IDLE, 2), (BUSY, 1)])
@pytest.mark.parametrize(("run", "uniform"), [(train, True), (decode, False)])
def test_each_situation_gets_its_fastest_count(speeds, best, run, uniform):
    machine = Machine(speeds)
    tuner = machine.tuner(uniform=uniform)
    speed = run(machine, tuner, 180.0)
    assert tuner.count == best
    assert speed >= 0.97 * speeds[best]


def test_a_neighbour_that_comes_and_goes_is_followed():
    machine = Machine(IDLE)
    tuner = machine.tuner(uniform=True)
    assert train(machine, tuner, 20.0) > 0.95 * IDLE[2]
    machine.speeds = BUSY
    assert train(machine, tuner, 60.0) > 0.85 * BUSY[1]
    assert tuner.count == 1
    machine.speeds = IDLE
    train(machine, tuner, 20.0)
    assert tuner.count == 2
    assert tuner.rates == pytest.approx(IDLE)


def test_search_follows_a_neighbour_within_seconds():
    machine = Machine(IDLE)
    tuner = machine.tuner(uniform=False)
    for speeds, best in ((IDLE, 2), (BUSY, 1), (IDLE, 2)):
        machine.speeds = speeds
        decode(machine, tuner, 20.0)
        assert tuner.count == best


def test_idle_training_pays_for_one_trial_only():
    machine = Machine(IDLE)
    tuner = machine.tuner(uniform=True)
    train(machine, tuner, 600.0)
    assert machine.steps(1, STEP) == 3
    assert {count for count, _, _ in machine.history[25:]} == {2}


def test_a_collapsed_count_is_tried_on_samples_only():
    machine = Machine(BUSY)
    tuner = machine.tuner(uniform=True)
    train(machine, tuner, 600.0)
    assert machine.steps(2, STEP) == 0
    assert 0 < sum(seconds for count, _, seconds in machine.history if count == 2) < 0.02 * 600


def test_one_slow_measurement_does_not_replace_the_count():
    machine = Machine(IDLE)
    tuner = machine.tuner(uniform=True)
    while tuner.trial is not None:
        machine.speeds = BUSY if len(machine.history) == 1 else IDLE  # the first after the warm-up
        with tuner.probe(STEP):
            machine.work(STEP)
    assert tuner.count == 2


def test_near_ties_keep_the_count_in_use():
    machine = Machine({1: 10_000.0, 2: 9_500.0})
    tuner = machine.tuner(uniform=True)
    train(machine, tuner, 60.0)
    assert tuner.count == 2


def test_many_cores_are_searched_in_both_directions():
    speeds = {1: 10.0, 2: 19.0, 4: 36.0, 8: 30.0, 16: 20.0, 32: 10.0, 64: 2.0}
    machine = Machine({count: 1_000 * speed for count, speed in speeds.items()})
    tuner = machine.tuner(uniform=True)
    train(machine, tuner, 30.0)
    assert tuner.count == 4
    machine.speeds = {count: 1_000.0 * count for count in speeds}
    train(machine, tuner, 60.0)
    assert tuner.count == 64


def test_slow_changes_of_the_work_favour_no_count():
    machine = Machine({1: 10_000.0, 2: 10_700.0})  # within the margin: nothing may change
    tuner = machine.tuner(uniform=False)
    for _ in range(200):
        with tuner.measure(300):
            machine.work(300)
        machine.speeds = {count: 0.97 * speed for count, speed in machine.speeds.items()}
    assert tuner.count == 2


def test_large_steps_are_measured_once():
    machine = Machine({1: 1_000.0, 2: 1_500.0})
    tuner = machine.tuner(uniform=True)
    train(machine, tuner, 60.0)
    assert machine.steps(1, STEP) == 1


def test_work_that_fails_leaves_no_measurement():
    machine = Machine(IDLE)
    tuner = machine.tuner(uniform=True)
    with pytest.raises(ZeroDivisionError), tuner.probe(STEP):
        raise ZeroDivisionError
    assert tuner.trial.seconds == 0
    assert torch.get_num_threads() == 1


def test_a_restored_count_is_used_and_then_checked():
    machine = Machine(IDLE)
    tuner = machine.tuner(uniform=True)
    tuner.restore(1)
    with tuner.watch(STEP):
        machine.work(STEP)
    assert machine.steps(1, STEP) == 1
    train(machine, tuner, 10.0)
    assert tuner.count == 2
    tuner.restore(64)  # from a machine with more cores
    assert tuner.count == 2


def test_outside_the_work_torch_keeps_its_count():
    tuner = ThreadTuner((1, 2, 3), uniform=True)
    with tuner.use():
        assert torch.get_num_threads() == 3
        with tuner.probe(1.0):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 1


@pytest.fixture
def cores(monkeypatch):
    """A machine with six cores of which torch uses all, as it does by default."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_cores", lambda: {6})
    monkeypatch.setattr(threads._LOCAL, "tuners", {})
    torch.set_num_threads(6)
    yield
    torch.set_num_threads(1)


def test_counts_are_powers_of_two_and_all_cores(cores):
    assert automatic() == (1, 2, 4, 6)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_an_environment_variable_fixes_the_count(cores, monkeypatch, name):
    monkeypatch.setenv(name, "6")
    assert automatic() == (6,)
    assert isinstance(training_threads(torch.device("cpu")), FixedThreads)
    assert isinstance(search_threads(500, torch.device("cpu")), FixedThreads)


def test_set_num_threads_fixes_the_count(cores):
    torch.set_num_threads(4)
    fixed = training_threads(torch.device("cpu"))
    assert automatic() == (4,)
    assert fixed.count == 4
    with fixed.use(), fixed.measure(1.0):
        assert torch.get_num_threads() == 4


def test_gpus_and_distributed_runs_keep_their_count(cores):
    assert isinstance(training_threads(torch.device("cuda")), FixedThreads)
    assert isinstance(training_threads(torch.device("cpu"), processes=2), FixedThreads)
    assert isinstance(search_threads(500, torch.device("cuda")), FixedThreads)


def test_searches_of_few_and_many_rows_are_tuned_apart(cores):
    cpu = torch.device("cpu")
    many, few = search_threads(500, cpu), search_threads(1, cpu)
    assert many is search_threads(400, cpu)
    assert many is not few
    found = []
    other = threading.Thread(target=lambda: found.append(search_threads(500, cpu)))
    other.start()
    other.join()
    assert found[0] is not many


def test_inside_a_tuner_the_counts_are_those_outside(cores):
    tuner = search_threads(500, torch.device("cpu"))
    tuner.restore(2)
    with tuner.use(), tuner.use(1):
        assert automatic() == (1, 2, 4, 6)
        assert search_threads(500, torch.device("cpu")) is tuner
    torch.set_num_threads(2)
    assert automatic() == (2,)


def test_a_search_is_timed_step_by_step(cores, monkeypatch):
    model, words = regard.load("spelling"), ["attention", "beam", "search", "greedy", "thread"]
    measured = []
    record = ThreadTuner.probe
    monkeypatch.setattr(
        ThreadTuner,
        "probe",
        lambda *some, **options: measured.append(some[1]) or record(*some, **options),
    )
    monkeypatch.setattr(threads, "BLOCK", 1e9)  # no decision, however slow this machine is
    for beam in (1, 4):
        for lines in (words, words[:1]):
            measured.clear()
            answers = list(model.many(lines, model.search(beam=beam)))
            longest = max(len(answer.ids) for answer in answers) + 1
            assert longest <= len(measured) <= 3 * longest + 30
            assert torch.get_num_threads() == 6


@pytest.mark.parametrize("beam", [1, 4])
def test_answers_do_not_depend_on_the_thread_count(beam):
    model, words = (
        regard.load("spelling"),
        [f"{a}{b}ing" for a in "bcdfghlmnprst" for b in ("a", "oo", "ea")],
    )
    found = {}
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found[count] = list(model.many(words, model.search(beam=beam)))
    torch.set_num_threads(1)
    for count in (2, 3):
        for one, other in zip(found[1], found[count], strict=True):
            assert one.ids == other.ids
            assert one.logps == pytest.approx(other.logps, abs=1e-5)
