"""The native CPU engine: float32 and int8 inference in C++, without torch.

>>> model = NativeModel(settings, sizes, read_tensors("weights.safetensors"))
>>> model.search([[5, 3, 8]], limits=[26])[0][0].ids
"""

from typing import TYPE_CHECKING

from regard.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.native.gate import cannot
    from regard.native.library import check_kernels, kernel_names, unavailable
    from regard.native.native_model import NativeHypothesis, NativeModel, thread_count
    from regard.native.native_options import NativeOptions
    from regard.native.weights_file import read_tensors

__all__ = [
    "NativeHypothesis",
    "NativeModel",
    "NativeOptions",
    "cannot",
    "check_kernels",
    "kernel_names",
    "read_tensors",
    "thread_count",
    "unavailable",
]

_HOMES = {
    "gate": ("cannot",),
    "library": ("check_kernels", "kernel_names", "unavailable"),
    "native_model": ("NativeHypothesis", "NativeModel", "thread_count"),
    "native_options": ("NativeOptions",),
    "weights_file": ("read_tensors",),
}
__getattr__ = lazy_names(__name__, _HOMES)
