"""The process that loads a model and forks its workers."""

import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from regard.serve.model_loader import ModelLoader


def waited(number, stack):
    raise TimeoutError("it waited for a process that is not its own")


@pytest.fixture
def other_child():
    """A process that is not a worker. The alarm ends a test that waits for it."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    signal.signal(signal.SIGALRM, waited)
    signal.alarm(60)
    with child:
        yield child
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        child.communicate(b"\n")


@pytest.mark.usefixtures("other_child")
@pytest.mark.parametrize("error", [None, ConnectionResetError()])
def test_no_signal_writes_to_a_socket_that_is_closed(error, monkeypatch):
    service, control = socket.socketpair()
    loader = ModelLoader(control)

    def receive():
        if error is not None:
            raise error

    monkeypatch.setattr(loader.channel, "receive_socket", receive)
    handler, descriptor = signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)
    try:
        with service, control:
            service.send(b"x")  # the control socket is ready
            with suppress(ConnectionResetError):
                loader._fork_workers()
        assert signal.set_wakeup_fd(-1) == -1
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.set_wakeup_fd(descriptor)
