"""The process that loads a model and forks its workers."""

import signal
import socket
from contextlib import suppress

import pytest

from regard.serve.model_loader import ModelLoader


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
