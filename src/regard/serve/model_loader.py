"""The loader process of a model: loads the bundle once and forks a worker on request.

Forked workers share its memory: weights, packed weights and tokenizers exist once, and a worker
that died is replaced within milliseconds, from the bundle as it was when it was loaded. On a GPU,
whose state does not survive a fork, the loader becomes the only worker.

    python -m regard.serve.model_loader FILE_DESCRIPTOR
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from typing import Any

from regard.errors import RegardError
from regard.serve.frames import BlockingChannel, Kind, pack, pack_json
from regard.serve.worker_answers import WorkerAnswers
from regard.serve.worker_loop import serve_socket

FACTS = ("title", "task", "parameters", "metrics", "precision", "example")  # of a model card


class ModelLoader:
    """Loads a model as a LOAD message says, then forks workers until its socket is closed."""

    def __init__(self, control: socket.socket) -> None:
        self.channel = BlockingChannel(control)
        self.answers: WorkerAnswers | None = None
        self.workers: set[int] = set()  # their process ids

    def run(self) -> None:
        """Serve the control socket."""
        frame = self.channel.receive()
        if frame is None:
            return
        try:
            facts = self._load(**frame.json())
        except Exception as error:  # reported to whoever started the service
            message = str(error) if isinstance(error, RegardError) else repr(error)
            self.channel.send(pack_json(Kind.FAILED, message=message))
            return
        forks = facts["device"] == "cpu" and facts["engine"] != "ctranslate2"  # it has threads
        self.channel.send(pack_json(Kind.READY, os.getpid(), **facts, forks=forks))
        self._fork_workers() if forks else self._become_worker()

    def _load(self, folder: str, int8: bool, engine: str, device: str) -> dict[str, Any]:
        """Load the model and answer one text, so that a model that cannot answer is never used."""
        from regard.loading import fingerprint, load
        from regard.model_location import find_model

        precision = "int8" if int8 else None
        how: dict[str, Any] = {"device": device, "precision": precision, "engine": engine}
        pipeline = load(folder, long="allow", **how)
        self.answers = WorkerAnswers(pipeline)
        card = pipeline.bundle.card
        list(pipeline.answers([str(card.get("example", "a"))]))
        gc.collect()
        gc.freeze()  # spares the collector, and keeps the pages shared after a fork
        used = pipeline.engine
        where = "cpu" if used == "native" else pipeline.device.type
        return {
            "fingerprint": fingerprint(find_model(folder)),
            "engine": used,
            "device": where,
            "card": {name: card[name] for name in FACTS if name in card},
            "languages": list(pipeline.bundle.template.languages),
        }

    def _become_worker(self) -> None:
        assert self.answers is not None
        received = self.channel.receive_socket()
        if received is not None and received[1] is not None:
            self.channel.send(pack(Kind.FORKED, os.getpid()))
            serve_socket(self.answers, socket.socket(fileno=received[1]))

    def _fork_workers(self) -> None:
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        try:
            self._serve_forks(waker, [waker, woken, self.channel.socket])
        finally:
            signal.set_wakeup_fd(-1)  # a worker may end after these sockets
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            waker.close()
            woken.close()
        self._wait_for_workers()

    def _serve_forks(self, waker: socket.socket, inherited: list[socket.socket]) -> None:
        """Fork a worker for each socket that is received, until the service closes its own."""
        while True:
            ready, _, _ = select.select([self.channel.socket, waker], [], [])
            if waker in ready:
                waker.recv(4096)
                self._reap()
            if self.channel.socket in ready:
                received = self.channel.receive_socket()
                if received is None or received[1] is None:
                    return
                self._fork(received[0].id, received[1], inherited)

    def _fork(self, id: int, file: int, inherited: list[socket.socket]) -> None:
        pid = os.fork()
        if pid:
            self.workers.add(pid)
            os.close(file)
            self.channel.send(pack(Kind.FORKED, pid))
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in inherited:
                one.close()
            assert self.answers is not None
            serve_socket(self.answers, socket.socket(fileno=file))
            code = 0
        except ConnectionError:
            code = 0  # the service is gone
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Report every worker that ended."""
        for worker in list(self.workers):
            pid, status = os.waitpid(worker, os.WNOHANG)
            if pid:
                self.workers.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                self.channel.send(pack_json(Kind.DIED, pid, status=code))

    def _wait_for_workers(self) -> None:
        """Wait until all workers ended: their sockets are closed, too."""
        for worker in self.workers:
            os.waitpid(worker, 0)


def main() -> None:
    """Run a loader on the socket that the service passed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the service decides when its processes end
    control = socket.socket(fileno=int(sys.argv[1]))
    with control, contextlib.suppress(ConnectionError):  # the service may be gone
        ModelLoader(control).run()


if __name__ == "__main__":
    main()
