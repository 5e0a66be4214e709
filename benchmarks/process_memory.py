"""Memory of a process and its children while it works, sampled by stage."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FIELDS = {"own anonymous": "RssAnon", "own": "VmRSS", "all anonymous": "RssAnon", "all": "VmRSS"}


class MemoryMonitor:
    """Samples the memory of this process ("own") and with its children ("all"; shared pages count
    twice). `peaks` are megabytes by stage; set `stage` when one begins."""

    def __init__(self, every: float = 0.05) -> None:
        self.stage = "start"
        self.peaks: defaultdict[str, dict[str, float]] = defaultdict(
            lambda: dict.fromkeys(FIELDS, 0.0)
        )
        self._every, self._stopped = every, threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> "MemoryMonitor":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def peak(self, kind: str) -> float:
        """The peak over all stages."""
        return max((peaks[kind] for peaks in self.peaks.values()), default=0.0)

    def _repeat(self) -> None:
        while not self._stopped.wait(self._every):
            peaks, children = self.peaks[self.stage], list(_children())
            for kind, field in FIELDS.items():
                processes = ["self", *(children if kind.startswith("all") else ())]
                value = sum(megabytes(process, field) for process in processes)
                peaks[kind] = max(peaks[kind], value)


def megabytes(process: str, field: str) -> float:
    """Memory of a process, now (VmRSS, RssAnon) or at its peak (VmHWM); 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


def _children() -> Iterator[str]:
    """The ids of the child processes."""
    for task in Path("/proc/self/task").iterdir():
        try:
            yield from (task / "children").read_text().split()
        except OSError:  # the thread has ended
            continue
