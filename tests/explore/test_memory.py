"""The memory of the explorer: the cap of its cache in bytes, and freed memory that is returned."""

import platform
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from regard.explore import trace_store
from regard.explore.messages import TraceRequest
from regard.explore.trace_store import MAX_BYTES, TraceStore

MB = 1 << 20
# Many threads fill their heaps and free all but a few blocks, which hold on to the pages around.
FRAGMENTS = """
import ctypes, re, threading
from regard.web.allocator import limit_arenas, release_free_memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
assert limit_arenas()
before, barrier, done = resident(), threading.Barrier(8), threading.Barrier(9)

def work():
    blocks = [libc.malloc(8192) for _ in range(2000)]
    for block in blocks:
        ctypes.memset(block, 1, 8192)
    barrier.wait()
    for at, block in enumerate(blocks):
        if at % 500 != 499:
            libc.free(block)
    done.wait()
    done.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads:
    one.start()
done.wait()
kept = resident() - before
release_free_memory()
print(kept, resident() - before)
done.wait()
"""


@pytest.fixture
def stored(models, ids):
    request = TraceRequest(model=ids["transformer"], source="a", target="Z")
    return TraceStore(models).compute(request)


@pytest.fixture
def of_size(stored):
    """A trace of a given size with a request of its own."""

    def make(at: int, size: int) -> trace_store.StoredTrace:
        request = stored.request.model_copy(update={"source": f"text {at}"})
        return replace(stored, request=request, bytes=size)

    return make


def test_cache_never_exceeds_its_cap_in_bytes(models, of_size):
    traces, draw = TraceStore(models), random.Random(0)
    kept: list[tuple[str, int]] = []  # what an LRU cache of this cap has, by hand
    for at in range(400):
        one = of_size(at, draw.choice([draw.randrange(1, 4 * MB), draw.randrange(1, 90 * MB)]))
        traces._keep(one)
        kept.append((one.id, one.bytes))
        while sum(size for _, size in kept) > MAX_BYTES or len(kept) > trace_store.MAX_TRACES:
            kept.pop(0)
        assert traces.bytes <= MAX_BYTES
        assert list(traces._traces) == [id for id, _ in kept]


def test_free_memory_is_returned_as_traces_are_dropped(models, of_size, monkeypatch):
    released = []
    monkeypatch.setattr(trace_store, "release_free_memory", lambda: released.append(1))
    traces = TraceStore(models, max_bytes=10 * MB)
    for at in range(11):  # ten fit, one is dropped
        traces._keep(of_size(at, MB))
    assert not released
    for at in range(11, 9 + 3 * trace_store.RELEASE_BYTES // MB):
        traces._keep(of_size(at, MB))
    assert len(released) == 2
    traces._keep(of_size(1_000, MB))
    assert len(released) == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_fragmented_heaps_return_their_pages():
    code = FRAGMENTS
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    before, after = map(int, run.stdout.split())
    assert before > 60  # of 125 MB, freed between blocks in use
    assert after < 15
