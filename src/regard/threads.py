"""Thread count: how many CPU threads torch uses, chosen by timing the work itself.

A parallel operation ends when its slowest thread ends. If another process occupies one core, that
thread waits for whole scheduler time slices, thousands of times a second, and two threads become
several times slower than one. So training and search time their own steps with different thread
counts, keep the fastest, and repeat the trial when the speed changes.

The count stays fixed if OMP_NUM_THREADS or MKL_NUM_THREADS is set, or after
`torch.set_num_threads(n)` with n other than the number of cores. Outside the timed work, torch
always has the count it had before.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from statistics import median
from types import MappingProxyType

import torch

BLOCK = 0.05  # seconds of one measurement: several time slices of the scheduler
ROUNDS = 3  # measurements of each count in a trial,
LONG = 1.0  # or one that takes this many seconds
MARGIN = 1.08  # speed-up from which a count replaces the current one
HOPELESS = 2.0  # slowdown from which a count is not measured again
WINDOW = 5  # measurements whose median is the present speed
DRIFT = 1.25  # change of speed that starts a new trial,
FIRST_DRIFT = 1.6  # or drop right after a trial, whose work may have been unusually easy
PERIODIC = 0.02  # share of the time that trials may cost if more threads might have become faster,
ALWAYS = 0.01  # if only a trial can tell,
PROMPT = 0.25  # and, after a change of speed, the share of what that change costs
STEP_ROWS = 32  # a decoding step takes about as long as this many rows, plus its rows
FEW_SOURCES = 4  # searches of fewer sources gain less from threads and are timed separately


class FixedThreads:
    """A fixed number of threads: the one that torch has."""

    trial = None
    rates: Mapping[int, float] = MappingProxyType({})

    @property
    def count(self) -> int:
        """Threads in use."""
        return torch.get_num_threads()

    def use(self) -> AbstractContextManager[None]:
        """Inside, torch uses this count."""
        return nullcontext()

    def measure(self, work: float) -> AbstractContextManager[None]:
        """Inside is this much work, which is not timed."""
        return nullcontext()

    watch = probe = measure


class ThreadTuner:
    """The fastest of several thread counts, found by trials on the work itself.

    `counts`: what may be used, ascending; the first count in use is the last of them. `uniform`:
    whether equal work takes equal time, so that a change of speed starts a new trial.
    """

    def __init__(
        self,
        counts: Sequence[int],
        *,
        uniform: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.counts, self.count = tuple(counts), counts[-1]
        self.uniform, self.clock = uniform, clock
        self.rates: dict[int, float] = {}  # work per second of each count in the latest trial
        self.trial: Trial | None = None
        self._cold = True  # the first work of all prepares memory and threads: it is not counted
        self._begin()

    @contextmanager
    def use(self, count: int | None = None) -> Iterator[None]:
        """Inside, torch uses the chosen count."""
        before, outer = torch.get_num_threads(), _LOCAL.outer
        _LOCAL.outer = before if outer is None else outer
        torch.set_num_threads(count or self.count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
            _LOCAL.outer = outer

    def measure(self, work: float) -> AbstractContextManager[None]:
        """Inside is this much work, timed for the trial if there is one."""
        return self.watch(work) if self.trial is None else self.probe(work, useful=True)

    @contextmanager
    def watch(self, work: float) -> Iterator[None]:
        """Inside is work with the chosen count; a trial begins if one is due after it."""
        with self.use():
            start = self.clock()
            yield
            seconds = self.clock() - start
        self._spent += seconds
        if self.trial is None and (rate := self._block.add(seconds, work)) is not None:
            self._recent.append(rate)
            if self._due():
                self._begin()

    @contextmanager
    def probe(self, work: float, *, useful: bool = False) -> Iterator[None]:
        """Inside is work with the count that the trial needs next. `useful`: the work has to be
        done anyway, so the trial costs only what the best count would have saved."""
        trial = self.trial
        assert trial is not None
        with self.use(trial.count):
            start = self.clock()
            yield
            seconds = self.clock() - start
        if self._cold:
            self._cold = False
        elif trial.add(seconds, work):
            self._finish(trial, useful)

    def restore(self, count: int) -> None:
        """Continue with the count of an earlier process, or the nearest there is here."""
        self.count = min(self.counts, key=lambda known: abs(known - count))
        self._begin()

    def _begin(self) -> None:
        """Start a trial of the current count and its neighbours."""
        place = self.counts.index(self.count)
        neighbours = self.counts[max(0, place - 1) : place + 2]
        others = [count for count in neighbours if count != self.count]
        self.trial = Trial([self.count, *others], sample=self.uniform)
        self._block, self._recent = Block(), deque[float](maxlen=WINDOW)
        self._cost, self._spent = 0.0, 0.0  # seconds that the trial cost; seconds of work since
        self._reference, self._settled = 0.0, False  # the speed to expect; seen after the trial?

    def _finish(self, trial: Trial, useful: bool) -> None:
        """Take the best count; if it is a new one, try the next in that direction as well."""
        rates = trial.rates
        best, before = max(rates, key=lambda count: rates[count]), self.count
        lost = trial.seconds - trial.work / rates[best] if useful else trial.seconds
        self._cost += max(BLOCK, lost)
        self.rates, self.trial = {**self.rates, **rates}, None
        if rates[best] >= MARGIN * rates[before]:
            self.count = best
            place = self.counts.index(best) + (1 if best > before else -1)
            if 0 <= place < len(self.counts):
                self.trial = Trial([best, self.counts[place]], sample=self.uniform)
        self._reference = rates[self.count]

    def _due(self) -> bool:
        """Whether a new trial can be expected to pay."""
        if not self.uniform:
            return self._spent * ALWAYS >= self._cost
        if self.count < self.counts[-1] and self._spent * PERIODIC >= self._cost:
            return True
        if len(self._recent) < WINDOW:
            return False
        speed = median(self._recent)
        if not self._settled and speed * FIRST_DRIFT > self._reference:
            self._reference, self._settled = speed, True
        change = speed / self._reference
        affordable = self._spent * abs(1 - change) * PROMPT >= self._cost
        return affordable and not 1 / DRIFT < change < DRIFT


class Block:
    """Work timed together, until it has taken long enough to be a measurement."""

    def __init__(self) -> None:
        self.seconds, self.work = 0.0, 0.0

    def add(self, seconds: float, work: float) -> float | None:
        """Add work; returns its rate (work per second) when the measurement is complete."""
        self.seconds, self.work = self.seconds + seconds, self.work + work
        if self.seconds < BLOCK or not self.work:
            return None
        rate = self.work / self.seconds
        self.seconds, self.work = 0.0, 0.0
        return rate


class Trial:
    """Measurements of several counts in turn; each round reverses the order, so that work which
    slowly becomes harder or easier favours none. The first count is the one in use.

    While `sample` is true, a small part of the usual work is enough: it shows which counts are
    hopeless at little cost, and only the others are compared on the usual work.
    """

    def __init__(self, counts: Sequence[int], *, sample: bool) -> None:
        self.current, self.sample = counts[0], sample
        self.seconds, self.work = 0.0, 0.0
        self.rates: dict[int, float] = {}  # work per second, from the latest measurements
        self._measured: dict[int, list[float]]
        self._round: list[int]  # counts still to measure in this round
        self._compare(counts)

    @property
    def count(self) -> int:
        """The count to measure next."""
        return self._round[0]

    def add(self, seconds: float, work: float) -> bool:
        """Add work that was done with `count`; returns whether the trial is complete."""
        self.seconds, self.work = self.seconds + seconds, self.work + work
        self._taken[self.count] += seconds
        rate = self._block.add(seconds, work)
        if rate is None:
            return False
        last = self._round.pop(0)
        self._measured[last].append(rate)
        self.rates[last] = median(self._measured[last])
        if not self._round:
            counts = sorted(self._measured, reverse=last == max(self._measured))
            self._round = [count for count in counts if self._needs_more(count)]
            survivors = [count for count in counts if not self._hopeless(count)]
            if not self._round and self.sample and len(survivors) > 1:
                self.sample = False
                self._compare(survivors)
        return not self._round

    def _compare(self, counts: Sequence[int]) -> None:
        """Start to measure these counts."""
        self._measured = {count: [] for count in counts}
        self._taken = dict.fromkeys(counts, 0.0)  # seconds
        self._round, self._block = list(counts), Block()

    def _hopeless(self, count: int) -> bool:
        return HOPELESS * self.rates[count] < max(self.rates.values())

    def _needs_more(self, count: int) -> bool:
        """Whether a count needs another measurement; the one in use is not given up after one."""
        known = self._measured[count]
        if self._hopeless(count):
            return count == self.current and len(known) == 1
        rivals = [self._hopeless(other) for other in self._measured if other != count]
        return (
            not self.sample
            and not all(rivals)
            and len(known) < ROUNDS
            and self._taken[count] < LONG
        )


def automatic() -> tuple[int, ...]:
    """The thread counts to choose from: 1, 2, 4, … and all cores; one if the user has fixed it."""
    count = torch.get_num_threads() if _LOCAL.outer is None else _LOCAL.outer
    fixed = "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ
    if fixed or count not in _cores():
        return (count,)
    return (*(1 << power for power in range((count - 1).bit_length())), count)


def training_threads(device: torch.device, processes: int = 1) -> ThreadTuner | FixedThreads:
    """The threads of a training run: fixed on a GPU, and where several processes share a run."""
    counts = automatic() if device.type == "cpu" and processes == 1 else (1,)
    return ThreadTuner(counts, uniform=True) if len(counts) > 1 else FixedThreads()


def search_threads(sources: int, device: torch.device) -> ThreadTuner | FixedThreads:
    """The threads of a search over this many sources: one tuner for few and one for many of them,
    in each Python thread, because each has its own count in torch."""
    counts = automatic() if device.type == "cpu" else (1,)
    if len(counts) == 1:
        return FixedThreads()
    key = counts, sources < FEW_SOURCES
    if key not in _LOCAL.tuners:
        _LOCAL.tuners[key] = ThreadTuner(counts, uniform=False)
    return _LOCAL.tuners[key]


class _Local(threading.local):
    """The tuners of one Python thread, and its count outside of them while one is in use."""

    def __init__(self) -> None:
        self.tuners: dict[tuple[tuple[int, ...], bool], ThreadTuner] = {}
        self.outer: int | None = None


_LOCAL = _Local()


@cache
def _cores() -> set[int]:
    """The counts that torch itself may start with: this process's logical or physical cores."""
    if not hasattr(os, "sched_getaffinity"):
        return {os.cpu_count() or 1}
    own = os.sched_getaffinity(0)
    files = [Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in own]
    physical = {file.read_text() for file in files} if all(map(Path.exists, files)) else own
    return {len(own), len(physical)}
