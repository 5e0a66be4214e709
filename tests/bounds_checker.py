"""Out-of-bounds checker for Triton's interpreter.

A kernel may touch only the memory of the tensors it was launched with. A GPU reads past the end of
a tensor without an error as long as some other tensor lies there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np


class OutOfBoundsError(Exception):
    """A kernel accessed memory outside its tensors."""


class BoundsChecker:
    """The memory ranges of one launch, against which every access is checked."""

    def __init__(self) -> None:
        self.kernel, self.ranges = "", list[tuple[int, int]]()

    def start_launch(self, kernel: str, tensors: Any) -> None:
        """Allow the memory of these tensors, and no other, until the next launch."""
        self.kernel, self.ranges = kernel, sorted(set(_ranges(tensors)))

    def check(self, pointers: Any, mask: Any, access: str) -> None:
        """Raise if an unmasked pointer is out of bounds."""
        active = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
        addresses = pointers.data[active].astype(np.int64)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        inside = np.zeros(addresses.shape, bool)
        for first, last in self.ranges:
            inside |= (addresses >= first) & (addresses + size <= last)
        if not inside.all():
            outside = np.count_nonzero(~inside)
            raise OutOfBoundsError(
                f"{self.kernel} {access} {outside:,} of {addresses.size:,} addresses out of bounds"
            )


@contextmanager
def check_bounds() -> Iterator[BoundsChecker]:
    """Check every kernel launch of Triton's interpreter inside the block."""
    from triton.runtime import interpreter

    checker = BoundsChecker()
    builder, launcher = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store = builder.create_masked_load, builder.create_masked_store
    atomic, copy_arguments = builder.create_atomic_rmw, launcher._init_args_hst

    def checked_arguments(self: Any, args: Any, options: Any) -> Any:
        on_host = copy_arguments(self, args, options)
        checker.start_launch(self.fn.__name__, (*on_host[0], *on_host[1].values()))
        return on_host

    def checked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        checker.check(pointers, mask, "reads")
        return load(self, pointers, mask, *rest)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        checker.check(pointers, mask, "writes")
        return store(self, pointers, value, mask, *rest)

    def checked_atomic(
        self: Any, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        checker.check(pointers, mask, "updates")
        return atomic(self, how, pointers, value, mask, *rest)

    with (
        patch.object(launcher, "_init_args_hst", checked_arguments),
        patch.object(builder, "create_masked_load", checked_load),
        patch.object(builder, "create_masked_store", checked_store),
        patch.object(builder, "create_atomic_rmw", checked_atomic),
    ):
        yield checker


def _ranges(arguments: Any) -> Iterator[tuple[int, int]]:
    """The address ranges of all tensors among the arguments of a launch."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _ranges(argument)
        elif hasattr(argument, "untyped_storage"):
            storage = argument.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()
