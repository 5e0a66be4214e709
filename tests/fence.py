"""Fence: under Triton's interpreter, no kernel may touch memory outside the tensors it was given.

A GPU reads past the end of a tensor without a word as long as something else lies there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np


class OutsideError(Exception):
    """A kernel reached past its tensors."""


class Fence:
    """The memory of one launch, and the checks of all that is read or written."""

    def __init__(self) -> None:
        self.kernel, self.ranges = "", list[tuple[int, int]]()

    def surround(self, kernel: str, tensors: Any) -> None:
        """From now on this kernel runs, with these tensors."""
        self.kernel, self.ranges = kernel, sorted(set(_ranges(tensors)))

    def check(self, pointers: Any, mask: Any, deed: str) -> None:
        """Raise where a place that counts lies outside."""
        places = pointers.data[np.broadcast_to(mask.data.astype(bool), pointers.data.shape)].astype(
            np.int64
        )
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        inside = np.zeros(places.shape, bool)
        for first, last in self.ranges:
            inside |= (places >= first) & (places + size <= last)
        if not inside.all():
            raise OutsideError(
                f"{self.kernel} {deed} {np.count_nonzero(~inside):,} of {places.size:,} places "
                "outside"
            )


@contextmanager
def fenced() -> Iterator[Fence]:
    """Inside, every launch is watched."""
    from triton.runtime import interpreter

    fence, builder, launch = Fence(), interpreter.InterpreterBuilder, interpreter.GridExecutor
    read, write, change = (
        builder.create_masked_load,
        builder.create_masked_store,
        builder.create_atomic_rmw,
    )
    given = launch._init_args_hst

    def told(self: Any, args: Any, named: Any) -> Any:
        on_host = given(self, args, named)
        fence.surround(self.fn.__name__, (*on_host[0], *on_host[1].values()))
        return on_host

    def reading(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        fence.check(pointers, mask, "reads")
        return read(self, pointers, mask, *rest)

    def writing(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        fence.check(pointers, mask, "writes")
        return write(self, pointers, value, mask, *rest)

    def changing(self: Any, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        fence.check(pointers, mask, "changes")
        return change(self, how, pointers, value, mask, *rest)

    with (
        patch.object(launch, "_init_args_hst", told),
        patch.object(builder, "create_masked_load", reading),
        patch.object(builder, "create_masked_store", writing),
        patch.object(builder, "create_atomic_rmw", changing),
    ):
        yield fence


def _ranges(things: Any) -> Iterator[tuple[int, int]]:
    for thing in things:
        if isinstance(thing, tuple):
            yield from _ranges(thing)
        elif hasattr(thing, "untyped_storage"):
            storage = thing.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()
