"""The compiled engine as a ctypes library: its structures, functions and errors."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

from regard.errors import EngineError
from regard.native.compiler import LIBRARY, SOURCES, find_compiler, source_digest

REBUILD = "run `python -m regard.native`"


class NativeError(EngineError):
    """The native engine is missing or refused a request."""


class SettingsStruct(ctypes.Structure):
    """`ModelSettings` of model.h."""

    _fields_ = (
        *(
            (name, c_int32)
            for name in (
                *("family", "width", "heads", "dim", "kv_heads", "encoder_layers"),
                *("decoder_layers", "ffn_width", "position", "position_limit", "rotated_dims"),
                *("neighbours", "window", "rms_norm", "pre_norm", "activation", "biases"),
                *("embedding_norm", "output_bias", "tied", "source_vocabulary"),
                *("target_vocabulary", "cell", "attention", "score", "int8"),
            )
        ),
        *((name, c_float) for name in ("score_scale", "norm_eps", "embedding_scale")),
    )


class OptionsStruct(ctypes.Structure):
    """`DecodingOptions` of constraints.h."""

    _fields_ = (
        *(
            (name, c_int32)
            for name in (
                *("beam", "n_best", "gnmt", "min_length", "max_length", "no_repeat_ngram"),
                *("sample", "top_k", "end"),
            )
        ),
        *(
            (name, c_double)
            for name in ("length_alpha", "repetition_penalty", "temperature", "top_p", "min_p")
        ),
        ("ids", POINTER(c_int32)),
        ("ends", POINTER(c_int32)),
        *(
            (name, c_int32)
            for name in ("never_count", "prefix_count", "ban_count", "required_count")
        ),
    )


class TensorStruct(ctypes.Structure):
    """`regard_tensor` of engine.h."""

    _fields_ = (
        ("name", c_char_p),
        ("data", c_void_p),
        ("shape", c_int64 * 2),
        ("rank", c_int32),
        ("scales", c_void_p),
    )


class ResultsStruct(ctypes.Structure):
    """`regard_results` of engine.h."""

    _fields_ = (
        ("sources", c_int64),
        ("hypotheses", c_int64),
        ("counts", POINTER(c_int32)),
        ("lengths", POINTER(c_int32)),
        ("scores", POINTER(c_double)),
        ("ids", POINTER(c_int32)),
        ("logps", POINTER(c_float)),
        ("alignments", POINTER(c_float)),
    )


_SIGNATURES = {
    "regard_error": (c_char_p, []),
    "regard_source_digest": (c_char_p, []),
    "regard_kernel_name": (c_char_p, [c_int32]),
    "regard_test_kernels": (c_int32, [c_char_p, c_int64]),
    "regard_create": (
        c_void_p,
        [POINTER(SettingsStruct), POINTER(TensorStruct), c_int64, c_void_p, c_int64, c_char_p],
    ),
    "regard_destroy": (None, [c_void_p]),
    "regard_search": (
        POINTER(ResultsStruct),
        [
            *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
            *(c_int64, POINTER(OptionsStruct), c_int32, c_void_p),
        ],
    ),
    "regard_score": (
        POINTER(ResultsStruct),
        [
            *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
            *(c_int64, POINTER(OptionsStruct), c_int32, c_int32, c_void_p),
        ],
    ),
    "regard_free_results": (None, [POINTER(ResultsStruct)]),
    "regard_cancellation_create": (c_void_p, []),
    "regard_cancel": (None, [c_void_p]),
    "regard_cancellation_destroy": (None, [c_void_p]),
    "regard_stream_open": (
        c_void_p,
        [c_void_p, c_void_p, c_int64, c_int32, POINTER(OptionsStruct)],
    ),
    "regard_stream_step": (c_int32, [c_void_p, POINTER(POINTER(c_int32)), POINTER(c_int32)]),
    "regard_stream_results": (POINTER(ResultsStruct), [c_void_p]),
    "regard_stream_close": (None, [c_void_p]),
}


def unavailable() -> str | None:
    """Why the native engine cannot run here; None if it can."""
    if not LIBRARY.is_file():
        found = "it was not compiled" if find_compiler() else "no C++ compiler was found"
        return f"the native engine is missing: {found}; install g++ or clang++, then {REBUILD}"
    if SOURCES.is_dir() and not _is_current(LIBRARY, LIBRARY.stat().st_mtime_ns, SOURCES):
        return f"the native engine is older than its sources; {REBUILD}"
    try:
        _open()
    except (OSError, AttributeError) as error:
        return f"the native engine cannot be loaded ({error}); {REBUILD}"
    return None


def load_library() -> ctypes.CDLL:
    """The compiled engine; raises if it cannot run here."""
    if reason := unavailable():
        raise NativeError(reason)
    return _open()


def last_error() -> NativeError:
    """The last failure of the engine in this thread."""
    return NativeError(_open().regard_error().decode("utf-8", "replace"))


def kernel_names() -> list[str]:
    """The kernels that this CPU can run, fastest first."""
    library = load_library()
    names: list[str] = []
    while name := library.regard_kernel_name(len(names)):
        names.append(name.decode())
    return names


def describe_engine() -> str:
    """The kernels that the engine uses, or why it cannot run here, in one line."""
    return unavailable() or f"native engine: {kernel_names()[0]} kernels"


def check_kernels() -> list[str]:
    """Compare all kernels with simple loops; returns the failures."""
    report = ctypes.create_string_buffer(1 << 20)
    failures = load_library().regard_test_kernels(report, len(report))
    lines = report.value.decode().splitlines()
    return [line for line in lines if not line.endswith(": ok")] if failures else []


@cache
def _is_current(library: Path, written: int, sources: Path) -> bool:
    """Whether a library, written at this time, was compiled from these sources.

    The digest is read from the file: a library that was loaded once cannot be replaced.
    """
    return source_digest(sources).encode() in library.read_bytes()


@cache
def _open() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
