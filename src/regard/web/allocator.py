"""glibc's allocator in a server with many threads: freed memory returns to the system.

Each thread may get a heap of its own (an arena), and a heap keeps what was freed in its middle. A
server that computes in many threads would grow long after its caches are full. Other C libraries
are left as they are.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

# Parameters of mallopt(3).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
ARENAS = 2
LARGE = 128 << 10  # bytes: larger blocks are mapped one by one, and unmapped when they are freed


@cache
def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def limit_arenas() -> bool:
    """Let all threads share two heaps, and map large blocks; False if the C library is another."""
    library = _glibc()
    if library is None:
        return False
    options = {M_ARENA_MAX: ARENAS, M_MMAP_THRESHOLD: LARGE, M_TRIM_THRESHOLD: LARGE}
    set_to = [library.mallopt(option, value) for option, value in options.items()]
    return all(set_to)


def release_free_memory() -> bool:
    """Return the free pages of all heaps to the system; False if there were none."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))
