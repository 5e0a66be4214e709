"""Long calls of the native engine are interrupted by signals and leave no thread behind."""

import signal
import threading

import pytest

from regard.native import NativeOptions, native_model
from tests.native.native_models import TINY, TINY_RECURRENT, random_pair

ENDLESS = 1 << 18  # steps of a search: hours


class Alarm(Exception):
    """What the signal handler raises."""


@pytest.fixture
def alarm():
    """`alarm()` sends a signal soon, whose handler raises."""

    def ring(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def assert_threads_end() -> None:
    """The threads of interrupted calls end by themselves."""
    for one in threading.enumerate():
        if one.name == "regard native engine":
            one.join(120)
            assert not one.is_alive()


@pytest.mark.parametrize("settings", [TINY, TINY_RECURRENT])
@pytest.mark.parametrize("threads", [1, 3])
def test_decoding_is_interrupted(alarm, settings, threads):
    _, native = random_pair(settings)
    options = NativeOptions(beam=2, min_length=ENDLESS)
    alarm()
    with pytest.raises(Alarm):
        native.search([[3, 4], [5], [6]], [ENDLESS] * 3, options, threads=threads)
    assert_threads_end()
    assert len(native.search([[3, 4]], [5])[0]) == 1  # the engine still works


@pytest.mark.parametrize("settings", [TINY, {**TINY_RECURRENT, "attention": "none"}])
def test_encoding_is_interrupted(alarm, settings):
    _, native = random_pair(settings)
    alarm()
    with pytest.raises(Alarm):
        native.search([[3] * 1_000_000], [1])
    assert_threads_end()


def test_scoring_is_interrupted(alarm):
    _, native = random_pair(TINY)
    alarm()
    with pytest.raises(Alarm):
        native.score([[3, 4]], [[5] * ENDLESS])
    assert_threads_end()


def test_a_handler_that_does_not_raise_changes_nothing(monkeypatch):
    monkeypatch.setattr(native_model, "SHORT_WORK", 0)
    _, native = random_pair(TINY)
    expected = native.search([[3, 4, 5]] * 50, [200] * 50)
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
        while not rung:
            assert native.search([[3, 4, 5]] * 50, [200] * 50) == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_and_errors(monkeypatch):
    monkeypatch.setattr(native_model, "SHORT_WORK", 0)
    _, native = random_pair(TINY)
    found = []
    other = threading.Thread(target=lambda: found.append(native.search([[3, 4]], [5])))
    other.start()
    other.join()
    assert found == [native.search([[3, 4]], [5])]
    with pytest.raises(native_model.NativeError, match="token 99 is not in the source vocabulary"):
        native.search([[99]], [5])
    assert_threads_end()
